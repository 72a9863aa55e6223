// Parts of the pages of administration: a dialog that changes something, pages of rows, who may not look.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { kRowsOfPage } from "../administration";
import { ApiError } from "../api";
import { number } from "../format";
import { place, setQuery } from "../router";
import { isOperator } from "../session";
import { Card, Copied, Dialog } from "./basic";

export interface ChangeProps {
  title: string;
  verb: string;
  isDangerous?: boolean;
  // False: what is typed is not whole yet.
  mayGo?: boolean;
  change: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}

// Asks before a change. It stays open with the reason if the server refuses.
export function ChangeDialog({ title, verb, isDangerous = false, mayGo = true, change, onClose, children }: ChangeProps) {
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await change();
    } catch (thrown) {
      setError(thrown instanceof ApiError ? thrown.message : String(thrown));
      setBusy(false);
    }
  };
  return <Dialog title={title} onClose={onClose}>
    <form onSubmit={(event) => { event.preventDefault(); if (mayGo && !isBusy) void submit(); }}>
      {children}
      {error !== "" && <p role="alert">{error}</p>}
      <div class="row">
        <button class={isDangerous ? "danger" : "main"} disabled={!mayGo || isBusy}>{verb}</button>
        <button type="button" onClick={onClose}>Cancel</button>
      </div>
    </form>
  </Dialog>;
}

// Where the list begins, from the address.
export const offsetOf = (query: URLSearchParams): number => Math.max(0, Math.floor(Number(query.get("from")) || 0));

export function Pager({ total, later, earlier }: { total: number; later: string; earlier: string }) {
  const offset = offsetOf(place.value.query);
  if (total <= kRowsOfPage && offset === 0) return null;
  const show = (from: number): void => setQuery("from", from <= 0 ? "" : String(from));
  return <p class="row" role="status">
    <button type="button" disabled={offset === 0} onClick={() => show(offset - kRowsOfPage)}>{later}</button>
    <button type="button" disabled={offset + kRowsOfPage >= total} onClick={() => show(offset + kRowsOfPage)}>{earlier}</button>
    <span class="muted">{number(Math.min(offset + 1, total))} to {number(Math.min(offset + kRowsOfPage, total))} of {number(total)}</span>
  </p>;
}

// A field whose value is in the address. A change begins the list anew.
export function setFilter(name: string, value: string): void {
  setQuery("from", "");
  setQuery(name, value);
}

export function TenantField() {
  if (!isOperator()) return null;
  return <input type="search" aria-label="Tenant" placeholder="Tenant" value={place.value.query.get("tenant") ?? ""}
    onChange={(event) => setFilter("tenant", event.currentTarget.value.trim())} />;
}

export function NeedsAdmin({ what }: { what: string }) {
  return <Card title="For administrators">
    <p>{what} needs the role admin. An administrator gives it on the page Users. A key of an administrator is made on the
      engine's machine:</p>
    <Copied text="lathe keys create --tenant NAME --scope admin" />
  </Card>;
}
