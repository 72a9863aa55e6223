// Metrics that the server keeps of a run: one series of numbers by step for each name.
import { call, type Schemas } from "./api";

// What is known of a series without its points.
export type Head = Schemas["MetricSeries"];
// With lists of one element for each bucket: step and time of its last point, and the least, largest
// and mean value of its points.
export type Series = Required<Head>;

export interface Metrics<Known> {
  run_id: string;
  series: Known[];
  // True if more names fit the question than an answer may have.
  more_names: boolean;
}

// Steps that are asked for, both included; an absent end is open.
export interface StepRange {
  from?: number | undefined;
  to?: number | undefined;
}

export interface MetricQuestion extends StepRange {
  // Names, or beginnings of names with a star.
  names: string[];
  // Buckets of each series.
  points: number;
}

export const kMaxSeriesWithPoints = 64;
export const kMaxRuns = 8;

const addressOf = (runId: string, query: URLSearchParams): string =>
  `/api/v1/training_runs/${encodeURIComponent(runId)}/metrics?${query}`;

export function queryMetrics(runId: string, { names, points, from, to }: MetricQuestion): Promise<Metrics<Series>> {
  const query = new URLSearchParams({ names: names.join(","), points: String(points) });
  if (from !== undefined) query.set("from_step", String(from));
  if (to !== undefined) query.set("to_step", String(to));
  return call("GET", addressOf(runId, query));
}

// All metrics of a run, without their points.
export const listHeads = (runId: string): Promise<Metrics<Head>> =>
  call("GET", addressOf(runId, new URLSearchParams({ points: "0" })));

// "loss" is the group of "loss:sum", and "env" that of "env/all/reward/total".
export const groupOf = (name: string): string => name.includes("/") ? name.slice(0, name.indexOf("/")) : "";

// What tells best whether a run goes well: the first of these that a run has.
const kMain = [/^reward$/, /^reward[/:](mean|total)$/, /^env\/all\/reward\/total$/, /reward/, /^loss[/:]mean$/, /^loss$/, /loss/];
// Questions that find it. They leave out most metrics of a run.
export const kMainNames = ["reward*", "env/all/reward*", "loss*"];

export function mainMetric<Named extends { name: string }>(series: Named[]): Named | undefined {
  for (const pattern of kMain) {
    const found = series.find(({ name }) => pattern.test(name));
    if (found !== undefined) return found;
  }
  return undefined;
}

// Place of a name among all: what a person looks at first comes first.
const kFirst = [/^reward/, /reward/, /loss/, /kl|entropy|clip/, /grad|norm/, /learning_rate|^lr$/];

function rankOf(name: string): number {
  const found = kFirst.findIndex((pattern) => pattern.test(name));
  return found < 0 ? kFirst.length : found;
}

// Puts layer2 before layer10.
const order = new Intl.Collator("en", { numeric: true });

export const byImportance = (a: string, b: string): number => rankOf(a) - rankOf(b) || order.compare(a, b);
