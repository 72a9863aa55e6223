// Lines over a common axis, drawn by uPlot, with the same numbers as a table.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { number } from "../format";
import { theme } from "../theme";
import { axesOf, colour, dashOf, kHeight, seriesToken } from "./canvas";

export interface Line {
  name: string;
  values: (number | null)[];
}

export interface LineChartProps {
  // What one x is, such as "hour".
  xName: string;
  xs: number[];
  // True if xs are seconds since 1970.
  isTime?: boolean;
  lines: Line[];
  show?: (value: number) => string;
}

function optionsOf(target: HTMLElement, { lines, isTime, show }: LineChartProps): uPlot.Options {
  return {
    width: target.clientWidth,
    height: kHeight,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false },
    scales: { x: { time: isTime === true }, y: { range: (_, low, high) => [Math.min(0, low), high || 1] } },
    axes: axesOf(target, { isTime: isTime === true, showY: show }),
    series: [{}, ...lines.map((line, index) => ({
      label: line.name,
      stroke: colour(target, seriesToken(index)),
      width: 1.75,
      dash: dashOf(index),
      points: { show: line.values.length < 3 },
    }))],
  };
}

const last = (line: Line): number | null => line.values.findLast((value) => value !== null) ?? null;

function summaryOf({ lines, xs, xName, show = number }: LineChartProps): string {
  const parts = lines.map((line) => {
    const value = last(line);
    return `${line.name} ends at ${value === null ? "no value" : show(value)}`;
  });
  return `${parts.join(", ")}; ${xs.length} points by ${xName}`;
}

function ChartTable({ xName, xs, isTime, lines, show = number }: LineChartProps) {
  const x = (value: number): string => isTime === true ? new Date(value * 1000).toLocaleString() : String(value);
  return <div class="wide" role="group" aria-label="The chart's numbers" tabIndex={0}>
    <table>
      <thead><tr><th scope="col">{xName}</th>
        {lines.map((line) => <th key={line.name} scope="col" class="number">{line.name}</th>)}</tr></thead>
      <tbody>{xs.map((value, row) => <tr key={value}><th scope="row">{x(value)}</th>
        {lines.map((line) => {
          const shown = line.values[row];
          return <td key={line.name} class="number">{shown === null || shown === undefined ? "" : show(shown)}</td>;
        })}</tr>)}</tbody>
    </table>
  </div>;
}

// Draws anew if the lines are others, and otherwise only moves them.
function useDrawing(props: LineChartProps, isTable: boolean) {
  const target = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [props.xs, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
  const names = props.lines.map((line) => line.name).join("\n");
  useEffect(() => {
    const element = target.current;
    if (isTable || element === null) return undefined;
    const made = new uPlot(optionsOf(element, props), data, element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: kHeight }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [names, isTable, theme.value]);
  useEffect(() => plot.current?.setData(data), [JSON.stringify(data)]);
  return target;
}

export function LineChart(props: LineChartProps) {
  const [isTable, showTable] = useState(false);
  const target = useDrawing(props, isTable);
  const show = props.show ?? number;
  return <>
    {isTable ? <ChartTable {...props} />
      : <div class="chart" ref={target} role="img" aria-label={summaryOf(props)} />}
    <div class="row">
      <div class="legend">
        {props.lines.map((line, index) => <span key={line.name} style={{ "--series": `var(${seriesToken(index)})` }}>
          {line.name} {show(last(line) ?? 0)}</span>)}
      </div>
      <button type="button" class="small" aria-pressed={isTable} onClick={() => showTable(!isTable)}>Table</button>
    </div>
  </>;
}
