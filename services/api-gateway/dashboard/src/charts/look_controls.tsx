// How all curves of a page are drawn. The address has it, so a copied link shows the same.
import { place, setQuery } from "../router";
import type { StepRange } from "../metrics";
import type { Look, XKind } from "./curves";

const kXKinds: [XKind, string][] = [["step", "Step"], ["relative", "Time since its start"], ["time", "Time"]];
const kSmoothings = [0, 0.5, 0.8, 0.9, 0.95, 0.99];

export function lookOf(query: URLSearchParams): Look {
  const smoothing = Number(query.get("smooth"));
  return {
    x: kXKinds.find(([kind]) => kind === query.get("x"))?.[0] ?? "step",
    smoothing: kSmoothings.includes(smoothing) ? smoothing : 0,
    isLog: query.get("log") === "1",
  };
}

function stepIn(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

export const rangeOf = (query: URLSearchParams): StepRange => ({ from: stepIn(query, "from"), to: stepIn(query, "to") });

export function zoom(from: number | undefined, to: number | undefined): void {
  setQuery("from", from === undefined ? "" : String(from));
  setQuery("to", to === undefined ? "" : String(to));
}

// Names that contain each word of the filter.
export function filterOf(query: URLSearchParams): (name: string) => boolean {
  const words = (query.get("m") ?? "").toLowerCase().split(/\s+/);
  return (name) => words.every((word) => name.toLowerCase().includes(word));
}

function StepField({ label, name, value }: { label: string; name: string; value: number | undefined }) {
  return <input class="steps" type="number" min={0} step={1} aria-label={label} placeholder={label} value={value ?? ""}
    onChange={(event) => setQuery(name, event.currentTarget.value)} />;
}

export function LookControls() {
  const { query } = place.value;
  const look = lookOf(query);
  const { from, to } = rangeOf(query);
  return <div class="row" role="search" aria-label="Curves">
    <input type="search" aria-label="Filter metrics by name" placeholder="Filter metrics" value={query.get("m") ?? ""}
      onInput={(event) => setQuery("m", event.currentTarget.value)} />
    <select aria-label="X axis" value={look.x} onChange={(event) => setQuery("x", event.currentTarget.value)}>
      {kXKinds.map(([kind, title]) => <option key={kind} value={kind}>{title}</option>)}
    </select>
    <select aria-label="Smoothing" value={String(look.smoothing)}
      onChange={(event) => setQuery("smooth", event.currentTarget.value === "0" ? "" : event.currentTarget.value)}>
      {kSmoothings.map((weight) => <option key={weight} value={String(weight)}>
        {weight === 0 ? "Not smoothed" : `Smoothed ${weight}`}</option>)}
    </select>
    <StepField label="From step" name="from" value={from} />
    <StepField label="To step" name="to" value={to} />
    {(from !== undefined || to !== undefined) &&
      <button type="button" onClick={() => zoom(undefined, undefined)}>All steps</button>}
    <button type="button" aria-pressed={look.isLog} onClick={() => setQuery("log", look.isLog ? "" : "1")}>Log y</button>
  </div>;
}
