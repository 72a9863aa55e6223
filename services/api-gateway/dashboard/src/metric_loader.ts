// Points of the metrics that are on the screen. Charts that appear together share their questions.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "./api";
import { onPoints } from "./live";
import { withPoints } from "./live_points";
import { kMaxSeriesWithPoints, queryMetrics, type Head, type Series, type StepRange } from "./metrics";
import { askPatiently } from "./patience";

// A chart is about as many pixels wide.
const kPoints = 400;

interface Waiting {
  resolve: (series: Series | undefined) => void;
  reject: (error: unknown) => void;
}

interface Batch extends StepRange {
  runId: string;
  waiting: Map<string, Waiting[]>;
}

// Questions that the next turn of the page sends, by run and range.
const batches = new Map<string, Batch>();

async function send({ runId, from, to, waiting }: Batch, names: string[]): Promise<void> {
  const all = (name: string): Waiting[] => waiting.get(name) ?? [];
  try {
    const { series } = await queryMetrics(runId, { names, points: kPoints, from, to });
    const found = new Map(series.map((one) => [one.name, one]));
    for (const name of names) all(name).forEach(({ resolve }) => resolve(found.get(name)));
  } catch (error) {
    for (const name of names) all(name).forEach(({ reject }) => reject(error));
  }
}

function flush(key: string): void {
  const batch = batches.get(key);
  batches.delete(key);
  if (batch === undefined) return;
  const names = [...batch.waiting.keys()];
  for (let first = 0; first < names.length; first += kMaxSeriesWithPoints) {
    void send(batch, names.slice(first, first + kMaxSeriesWithPoints));
  }
}

// The series of a name, undefined if the run has none in the range.
function loadSeries(runId: string, name: string, { from, to }: StepRange): Promise<Series | undefined> {
  const key = JSON.stringify([runId, from, to]);
  let batch = batches.get(key);
  if (batch === undefined) {
    batch = { runId, from, to, waiting: new Map() };
    batches.set(key, batch);
    setTimeout(() => flush(key), 0);
  }
  const { waiting } = batch;
  return new Promise((resolve, reject) => {
    waiting.set(name, [...waiting.get(name) ?? [], { resolve, reject }]);
  });
}

// All of what is wanted but its version.
const subjectOf = (wanted: string): string => JSON.stringify((JSON.parse(wanted) as unknown[]).slice(0, 4));

export interface Points {
  // By run; a run without the metric in the range is left out. Undefined: not known yet.
  series: Map<string, Series> | undefined;
  error: ApiError | undefined;
}

// What tells whether a series has newer points.
export const versionOf = ({ count, last_step, last_value }: Head): string => `${count} ${last_step} ${last_value}`;

// Loads a metric of some runs while `isWanted`, and again when `version` changes: what the caller
// knows of the series' ends, if the points that came by themselves do not reach them. Old points stay
// while newer ones are on their way.
export function usePoints(runIds: string[], name: string, range: StepRange, version: string, isWanted: boolean): Points {
  const [points, setPoints] = useState<Points>({ series: undefined, error: undefined });
  const shown = useRef("");
  const latest = useRef<Map<string, Series> | undefined>(undefined);
  latest.current = points.series;
  const wanted = JSON.stringify([runIds, name, range.from, range.to, version]);
  useEffect(() => {
    if (!isWanted) return undefined;
    const stops = runIds.map((id) => onPoints(id, (told) => {
      const series = latest.current?.get(id);
      const fresh = told?.series.find((one) => one.name === name);
      if (series === undefined || fresh === undefined) return;
      const longer = withPoints(series, fresh, range);
      if (longer === undefined) return;
      latest.current = new Map(latest.current).set(id, longer);
      setPoints({ series: latest.current, error: undefined });
    }));
    return () => stops.forEach((stop) => stop());
  }, [JSON.stringify([runIds, name, range.from, range.to]), isWanted]);
  useEffect(() => {
    if (!isWanted || shown.current === wanted) return undefined;
    // What has come by itself already needs no question.
    const known = runIds.map((id) => latest.current?.get(id)).map((one) => one === undefined ? "" : versionOf(one)).join("\n");
    if (shown.current !== "" && known === version && subjectOf(shown.current) === subjectOf(wanted)) {
      shown.current = wanted;
      return undefined;
    }
    let isOver = false;
    const stop = askPatiently(async () => {
      const found = await Promise.all(runIds.map((id) => loadSeries(id, name, range)));
      if (isOver) return;
      shown.current = wanted;
      const series = new Map<string, Series>();
      runIds.forEach((id, index) => {
        const one = found[index];
        if (one !== undefined) series.set(id, one);
      });
      setPoints({ series, error: undefined });
    }, (error) => setPoints(({ series }) => ({ series, error })));
    return () => {
      isOver = true;
      stop();
    };
  }, [wanted, isWanted]);
  return points;
}
