// Adds points that the server tells by itself to what was read.
import { useEffect, useRef, useState } from "preact/hooks";
import { type NewPoints, onPoints, type RunPoints } from "./live";
import type { Head, Metrics, Series, StepRange } from "./metrics";

// With more buckets the server makes coarser ones.
const kMaxBuckets = 800;

const timeOf = (ms: number): string => new Date(ms).toISOString();

// The first of the points that the series does not have; undefined: there is a gap before them.
function firstNew({ count, last_step, last_value }: Series, { count: newCount, steps, values }: NewPoints): number | undefined {
  const added = newCount - count;
  if (added > steps.length) return undefined;
  if (added < 0) return steps.length;
  const before = steps.length - added - 1;
  return before >= 0 && steps[before] === last_step && values[before] === last_value ? before + 1 : 0;
}

// The series with newer points; undefined if they do not follow it, so that it has to be read again.
export function withPoints(series: Series, fresh: NewPoints, { to }: StepRange): Series | undefined {
  const first = firstNew(series, fresh);
  if (first === undefined) return undefined;
  // Fewer points than steps: those of one step replace each other.
  const replaces = fresh.count - series.count < fresh.steps.length - first;
  const next: Series = {
    ...series, steps: [...series.steps], times_ms: [...series.times_ms], min: [...series.min], max: [...series.max],
    mean: [...series.mean], counts: [...series.counts],
  };
  for (let place = first; place < fresh.steps.length; ++place) {
    const step = fresh.steps[place] ?? 0;
    const value = fresh.values[place] ?? 0;
    const ms = fresh.times_ms[place] ?? 0;
    next.last_step = step;
    next.last_value = value;
    next.last_time = timeOf(ms);
    if (to !== undefined && step > to) continue;
    const last = next.steps.length - 1;
    const isSame = last >= 0 && next.steps[last] === step;
    if (isSame && replaces && next.counts[last] !== 1) return undefined;
    const at = isSame ? last : last + 1;
    const before = isSame && !replaces ? next.counts[last] ?? 0 : 0;
    next.steps[at] = step;
    next.times_ms[at] = ms;
    next.min[at] = before === 0 ? value : Math.min(next.min[last] ?? value, value);
    next.max[at] = before === 0 ? value : Math.max(next.max[last] ?? value, value);
    next.mean[at] = ((next.mean[last] ?? 0) * before + value) / (before + 1);
    next.counts[at] = before + 1;
  }
  next.count = Math.max(series.count, fresh.count);
  return next.steps.length > kMaxBuckets ? undefined : next;
}

function headOf({ name, unit, count, steps, times_ms, values }: NewPoints): Head {
  return { name, unit, count, last_step: steps.at(-1) ?? 0, last_value: values.at(-1) ?? 0, last_time: timeOf(times_ms.at(-1) ?? 0) };
}

const isNewer = (head: Head, than: Head): boolean => head.count > than.count ||
  (head.count === than.count && Date.parse(head.last_time) > Date.parse(than.last_time));

// What was read of a run's metrics, with what the server has told since.
export function useLiveHeads(runId: string, read: Metrics<Head>): Metrics<Head> {
  const told = useRef(new Map<string, Head>());
  const [, draw] = useState(0);
  useEffect(() => {
    told.current = new Map();
    return onPoints(runId, (points: RunPoints | undefined) => {
      for (const series of points?.series ?? []) told.current.set(series.name, headOf(series));
      draw((times) => times + 1);
    });
  }, [runId]);
  const names = new Set(read.series.map(({ name }) => name));
  const series = read.series.map((head) => {
    const newer = told.current.get(head.name);
    return newer !== undefined && isNewer(newer, head) ? { ...head, ...newer } : head;
  });
  for (const [name, head] of told.current) if (!names.has(name)) series.push(head);
  return { ...read, series };
}
