// One metric of one or more runs: its curves, its numbers as a table and as a file.
import { useSignal, type Signal } from "@preact/signals";
import { useCallback, useMemo, useState } from "preact/hooks";
import { seriesToken } from "../charts/canvas";
import { CurveChart } from "../charts/curve_chart";
import { csvOf, type Curve, type Look, showX, summaryOf, type Traced, traced, withUnit } from "../charts/curves";
import { zoom } from "../charts/look_controls";
import { number } from "../format";
import { usePoints } from "../metric_loader";
import type { StepRange } from "../metrics";
import { useVisible } from "../visible";

export interface MetricRun {
  id: string;
  label: string;
  // Colour of its curves.
  place: number;
}

export interface MetricCardProps {
  name: string;
  unit: string;
  // The runs that have the metric.
  runs: MetricRun[];
  // Changes when a run has newer points.
  version: string;
  look: Look;
  range: StepRange;
}

// The value at an x, or the one before it.
function valueAt({ xs, smooth }: Traced, x: number): number | null {
  let found: number | null = null;
  for (let place = 0; place < xs.length && (xs[place] ?? 0) <= x; ++place) found = smooth[place] ?? found;
  return found;
}

const lastOf = ({ smooth }: Traced): number | null => smooth.findLast((value) => value !== null) ?? null;

interface Drawn {
  curves: Curve[];
  lines: Traced[];
  places: number[];
}

interface ReadoutProps extends Drawn {
  unit: string;
  look: Look;
  cursor: Signal<number | undefined>;
}

// The last values, or those under the pointer.
function Readout({ lines, unit, look, cursor }: ReadoutProps) {
  const x = cursor.value;
  const [only] = lines;
  if (only === undefined) return null;
  // Several runs have their values below the chart.
  if (lines.length > 1) return <span>{x === undefined ? "last values" : showX(look.x, x)}</span>;
  return <span>{x === undefined ? "" : `${showX(look.x, x)} `}
    <strong>{withUnit(x === undefined ? lastOf(only) : valueAt(only, x), unit)}</strong></span>;
}

function Legend({ curves, lines, places, unit, cursor }: ReadoutProps) {
  const x = cursor.value;
  return <div class="legend">{curves.map(({ label }, index) => {
    const line = lines[index];
    const value = line === undefined ? null : x === undefined ? lastOf(line) : valueAt(line, x);
    return <span key={places[index]} style={{ "--series": `var(${seriesToken(places[index] ?? 0)})` }}>
      <bdi title={label}>{label}</bdi> {withUnit(value, unit)}</span>;
  })}</div>;
}

// Rows of the newest buckets, because a browser is slow with thousands of rows.
const kMaxRows = 500;

interface NumberRow {
  id: string;
  label: string;
  step: number;
  // Mean, least, largest, number of points; of single points only the value.
  values: (number | null)[];
  time: number;
}

function NumberTable({ name, curves }: { name: string; curves: Curve[] }) {
  const areBuckets = curves.some(({ series }) => series.counts.some((count) => count > 1));
  const rows = curves.flatMap(({ runId, label, series: { steps, times_ms, mean, min, max, counts } }) => steps.map((step, place): NumberRow => ({
    id: `${runId} ${place}`, label, step, time: times_ms[place] ?? 0,
    values: (areBuckets ? [mean, min, max, counts] : [mean]).map((column) => column[place] ?? null),
  }))).sort((a, b) => a.step - b.step);
  const shown = rows.slice(-kMaxRows);
  const titles = areBuckets ? ["Mean", "Least", "Largest", "Points"] : ["Value"];
  return <>
    <div class="wide numbers" role="group" aria-label={`Numbers of ${name}`} tabIndex={0}>
      <table>
        <thead><tr>{curves.length > 1 && <th scope="col">Run</th>}<th scope="col" class="number">Step</th>
          {titles.map((title) => <th key={title} scope="col" class="number">{title}</th>)}<th scope="col">Time</th></tr></thead>
        <tbody>{shown.map(({ id, label, step, time, values }) => <tr key={id}>
          {curves.length > 1 && <td><bdi title={label}>{label}</bdi></td>}
          <th scope="row" class="number">{step}</th>
          {values.map((value, column) => <td key={column} class="number">{value ?? ""}</td>)}
          <td>{new Date(time).toLocaleString()}</td>
        </tr>)}</tbody>
      </table>
    </div>
    {shown.length < rows.length && <p class="muted">The last {number(shown.length)} of {number(rows.length)} rows; the CSV has all.</p>}
  </>;
}

function download(name: string, curves: Curve[]): void {
  const address = URL.createObjectURL(new Blob([csvOf(name, curves)], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `${name.replace(/[^A-Za-z0-9_.-]+/g, "_")}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function useDrawn({ name, runs, version, look, range }: MetricCardProps, isWanted: boolean) {
  const { series, error } = usePoints(runs.map(({ id }) => id), name, range, version, isWanted);
  const { x, smoothing, isLog } = look;
  const labels = runs.map(({ id, label, place }) => `${id} ${place} ${label}`).join("\n");
  const drawn = useMemo<Drawn | undefined>(() => {
    if (series === undefined) return undefined;
    const found = runs.flatMap(({ id, label, place }) => {
      const one = series.get(id);
      return one === undefined || one.steps.length === 0 ? [] : [{ curve: { runId: id, label, series: one }, place }];
    });
    return {
      curves: found.map(({ curve }) => curve),
      lines: found.map(({ curve }) => traced(curve.series, { x, smoothing, isLog })),
      places: found.map(({ place }) => place),
    };
  }, [series, labels, x, smoothing, isLog]);
  return { drawn, error };
}

export function MetricCard(props: MetricCardProps) {
  const { name, unit, runs, look } = props;
  const [element, isVisible] = useVisible<HTMLElement>();
  const [isTable, showTable] = useState(false);
  const cursor = useSignal<number | undefined>(undefined);
  const { drawn, error } = useDrawn(props, isVisible);
  const onZoom = useCallback((from: number, to: number) => zoom(from, to), []);
  const readout = drawn === undefined ? undefined : { ...drawn, unit, look, cursor };
  return <section class="card metric" aria-label={name} ref={element}>
    <header><h3>{name}</h3>{readout !== undefined && <Readout {...readout} />}</header>
    {error !== undefined && (drawn === undefined || !error.isPassing) && <p role="alert">{error.message}</p>}
    {drawn === undefined || !isVisible ? <div class="chart" />
      : drawn.curves.length === 0 ? <p class="chart muted">No points in these steps.</p>
      : isTable ? <NumberTable name={name} curves={drawn.curves} />
      : <CurveChart summary={summaryOf(name, drawn.curves)} lines={drawn.lines} places={drawn.places} look={look}
          cursor={cursor} onZoom={onZoom} />}
    <div class="row">
      {readout !== undefined && runs.length > 1 ? <Legend {...readout} /> : <span />}
      <span class="row">
        <button type="button" class="small" aria-pressed={isTable} onClick={() => showTable(!isTable)}>Table</button>
        <button type="button" class="small" disabled={drawn === undefined}
          onClick={() => drawn !== undefined && download(name, drawn.curves)}>CSV</button>
      </span>
    </div>
  </section>;
}
