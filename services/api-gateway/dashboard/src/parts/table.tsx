// Tables: cards on a phone, and rows that j, k and Enter walk through.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { isTyping } from "../keyboard";
import { go } from "../router";

export interface Column<Row> {
  name: string;
  isNumber?: boolean;
  show: (row: Row) => ComponentChildren;
}

// Rows that a person marks, by a box or by the key x.
export interface Marks<Row> {
  ids: string[];
  // True if no more may be marked.
  isFull: boolean;
  toggle: (id: string) => void;
  label: (row: Row) => string;
}

export interface TableProps<Row> {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  // Where Enter leads; absent: rows are not selected.
  address?: (row: Row) => string;
  marks?: Marks<Row>;
}

// True if Enter means something where the focus is.
const isOnControl = (event: KeyboardEvent): boolean =>
  event.target instanceof Element && event.target.closest("a, button, input") !== null;

// Returns the number of the selected row; -1: none.
function useSelection(addresses: string[], toggle: (row: number) => void): number {
  const [selected, show] = useState(-1);
  // The next key may come before the next drawing.
  const now = useRef({ selected, addresses, toggle });
  now.current.addresses = addresses;
  now.current.toggle = toggle;
  useEffect(() => {
    const select = (row: number): void => {
      now.current.selected = Math.max(0, Math.min(row, now.current.addresses.length - 1));
      show(now.current.selected);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (isTyping(event) || now.current.addresses.length === 0) return;
      if (event.key === "j") select(now.current.selected + 1);
      else if (event.key === "k") select(now.current.selected - 1);
      else if (event.key === "x" && now.current.selected >= 0) now.current.toggle(now.current.selected);
      else if (event.key === "Enter" && !isOnControl(event)) {
        const address = now.current.addresses[now.current.selected];
        if (address !== undefined) go(address);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return Math.min(selected, addresses.length - 1);
}

function MarkBox<Row>({ row, id, marks }: { row: Row; id: string; marks: Marks<Row> }) {
  const isMarked = marks.ids.includes(id);
  return <input type="checkbox" aria-label={marks.label(row)} checked={isMarked} disabled={marks.isFull && !isMarked}
    onChange={() => marks.toggle(id)} />;
}

export function Table<Row>({ label, columns, rows, id, address, marks }: TableProps<Row>) {
  const selected = useSelection(address === undefined ? [] : rows.map(address), (place) => {
    const row = rows[place];
    if (row !== undefined) marks?.toggle(id(row));
  });
  useEffect(() => {
    document.querySelector('tr[aria-current]')?.scrollIntoView({ block: "nearest" });
  }, [selected]);
  const style = (column: Column<Row>): string => column.isNumber === true ? "number" : "";
  return <div class="wide" role="group" aria-label={label} tabIndex={0}>
    <table class="cards">
      <thead><tr>
        {marks !== undefined && <td />}
        {columns.map((column) => <th key={column.name} scope="col" class={style(column)}>{column.name}</th>)}
      </tr></thead>
      <tbody>
        {rows.map((row, index) => <tr key={id(row)} aria-current={index === selected ? "true" : undefined}>
          {marks !== undefined && <td class="mark"><MarkBox row={row} id={id(row)} marks={marks} /></td>}
          {columns.map((column) =>
            <td key={column.name} class={style(column)} data-label={column.name}><div>{column.show(row)}</div></td>)}
        </tr>)}
      </tbody>
    </table>
  </div>;
}
