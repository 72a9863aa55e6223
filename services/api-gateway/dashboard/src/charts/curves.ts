// Turns a run's series into lines to draw: the x that is chosen, gaps, smoothing, words for it.
import { number, seconds } from "../format";
import type { Series } from "../metrics";

// What an x is: a step, seconds since the run's first shown point, or the time itself.
export type XKind = "step" | "relative" | "time";

export interface Look {
  x: XKind;
  // Weight of what went before, 0 to below 1; 0: none.
  smoothing: number;
  isLog: boolean;
}

export interface Curve {
  runId: string;
  label: string;
  series: Series;
}

type Values = (number | null)[];

// One element for each bucket, in the order of x. A bucket without a value is a gap in the lines.
export interface Traced {
  xs: number[];
  // NaN in a gap between buckets.
  steps: number[];
  min: Values;
  max: Values;
  mean: Values;
  // The mean, smoothed.
  smooth: Values;
  hasBand: boolean;
}

// Missing steps break a line if the distance is this many times the usual one.
const kGap = 3;

const medianOf = (values: number[]): number | undefined => [...values].sort((a, b) => a - b)[values.length >> 1];

// An exponential moving average of which the first values do not lean to zero (as of Adam's
// moments). `weight` is that of a bucket with the usual number of points: a server answers old steps
// in larger buckets than new ones, and both must be smoothed over as many steps. Gaps stay gaps.
export function smoothed(values: Values, counts: number[], weight: number): Values {
  const usual = medianOf(counts.filter((count) => count > 0)) ?? 1;
  let average = 0;
  let started = 1;
  return values.map((value, place) => {
    if (value === null) return null;
    const kept = weight ** ((counts[place] ?? usual) / usual);
    average = kept * average + (1 - kept) * value;
    started *= kept;
    return average / (1 - started);
  });
}

function xsOf({ steps, times_ms }: Series, x: XKind): number[] {
  if (x === "step") return steps;
  const first = x === "time" ? 0 : Math.min(...times_ms);
  return times_ms.map((time) => (time - first) / 1000);
}

// Distance of a bucket's steps, by which gaps are known, whatever the buckets' sizes.
function stepOf(series: Series, place: number, before: number): number {
  return Math.abs((series.steps[place] ?? 0) - (series.steps[before] ?? 0)) / Math.max(1, series.counts[place] ?? 1);
}

function usualStep(series: Series, order: number[]): number {
  return medianOf(order.slice(1).map((place, index) => stepOf(series, place, order[index] ?? place))) ?? Infinity;
}

// Drops what a logarithmic axis cannot show. A band that reaches to zero ends at the least of the rest.
function positive(line: Traced): void {
  const keep = (value: number | null): number | null => value !== null && value > 0 ? value : null;
  const least = [...line.min, ...line.mean].reduce<number>((a, b) => b !== null && b > 0 && b < a ? b : a, Infinity);
  line.mean = line.mean.map(keep);
  line.smooth = line.smooth.map(keep);
  line.max = line.max.map(keep);
  line.min = line.min.map((value, place) => value === null || line.max[place] === null ? null : Math.max(value, least));
}

export function traced(series: Series, { x, smoothing, isLog }: Look): Traced {
  const xs = xsOf(series, x);
  // A repeated step may be later than those after it.
  const order = xs.map((_, place) => place).sort((a, b) => (xs[a] ?? 0) - (xs[b] ?? 0));
  const longest = kGap * usualStep(series, order);
  const made: Traced = { xs: [], steps: [], min: [], max: [], mean: [], smooth: [], hasBand: false };
  const counts: number[] = [];
  const add = (at: number, step: number, min: number | null, max: number | null, mean: number | null, count: number): void => {
    made.xs.push(at);
    made.steps.push(step);
    made.min.push(min);
    made.max.push(max);
    made.mean.push(mean);
    counts.push(count);
    made.hasBand ||= min !== max;
  };
  order.forEach((place, index) => {
    const at = xs[place] ?? 0;
    const before = order[index - 1];
    if (before !== undefined && stepOf(series, place, before) > longest) {
      add(((xs[before] ?? at) + at) / 2, NaN, null, null, null, 0);
    }
    add(at, series.steps[place] ?? 0, series.min[place] ?? null, series.max[place] ?? null, series.mean[place] ?? null,
      series.counts[place] ?? 1);
  });
  made.smooth = smoothing > 0 ? smoothed(made.mean, counts, smoothing) : made.mean;
  if (isLog) positive(made);
  return made;
}

// Steps, of which the x are within the ends; undefined if there are none.
export function stepsBetween(lines: Traced[], from: number, to: number): [number, number] | undefined {
  const inside = lines.flatMap(({ xs, steps }) =>
    steps.filter((step, place) => !Number.isNaN(step) && (xs[place] ?? 0) >= from && (xs[place] ?? 0) <= to));
  return inside.length === 0 ? undefined : [inside.reduce((a, b) => Math.min(a, b)), inside.reduce((a, b) => Math.max(a, b))];
}

export const showX = (x: XKind, value: number): string =>
  x === "step" ? `step ${number(value)}` : x === "relative" ? `after ${seconds(value)}` : new Date(value * 1000).toLocaleString();

export const withUnit = (value: number | null, unit: string): string =>
  value === null ? "–" : unit === "" ? number(value) : `${number(value)}\u202f${unit}`;

function movement(first: number, last: number): string {
  if (first === last) return "stayed at";
  return last > first ? "rose from" : "fell from";
}

// A chart in words.
export function summaryOf(name: string, curves: Curve[]): string {
  const parts = curves.map(({ label, series: { steps, mean } }) => {
    const values = mean.filter((value) => value !== null);
    const [first] = values;
    const last = values[values.length - 1];
    const whose = curves.length > 1 ? `${name} of ${label}` : name;
    if (first === undefined || last === undefined) return `${whose} has no values`;
    const ends = first === last ? number(last) : `${number(first)} to ${number(last)}`;
    return `${whose} ${movement(first, last)} ${ends} over steps ${steps[0]} to ${steps[steps.length - 1]}`;
  });
  return parts.length === 0 ? `${name} has no points here` : parts.join("; ");
}

// A spreadsheet takes text that begins with these for a formula.
const cell = (text: string): string => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

export function csvOf(name: string, curves: Curve[]): string {
  const lines = curves.flatMap(({ runId, label, series }) => series.steps.map((step, place) =>
    [cell(runId), cell(label), cell(name), step, new Date(series.times_ms[place] ?? 0).toISOString(), series.mean[place] ?? "",
      series.min[place] ?? "", series.max[place] ?? "", series.counts[place] ?? ""].join(",")));
  return ["run_id,run,name,step,time,mean,min,max,count", ...lines, ""].join("\r\n");
}
