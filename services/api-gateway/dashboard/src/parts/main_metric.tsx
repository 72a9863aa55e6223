// A run's main metric in a row of a table: its curve and its last value.
import { useEffect, useState } from "preact/hooks";
import type { Run } from "../api";
import { Sparkline } from "../charts/sparkline";
import { withUnit } from "../charts/curves";
import { kMainNames, mainMetric, queryMetrics, type Series } from "../metrics";
import { askPatiently } from "../patience";
import { useVisible } from "../visible";

const kPoints = 60;
const kMaxAtOnce = 4;
const kMaxKept = 2000;
// A result comes some time after its request, and a program's own points without one.
const kFreshMs = 30_000;
// A run that was heard of longer ago has no new points.
const kLiveMs = 15 * 60_000;

interface Kept {
  // When the run was last heard of as of the answer.
  heardAt: string;
  askedAt: number;
  // Undefined: the run has no such metric.
  series: Series | undefined;
}

const kept = new Map<string, Kept>();
const waiting: (() => void)[] = [];
let numAsking = 0;

// At most `kMaxAtOnce` of the rows ask at the same time.
async function inTurn<T>(ask: () => Promise<T>): Promise<T> {
  if (numAsking >= kMaxAtOnce) await new Promise<void>((resolve) => waiting.push(resolve));
  else ++numAsking;
  try {
    return await ask();
  } finally {
    const next = waiting.shift();
    if (next === undefined) --numAsking;
    else next();
  }
}

async function load(run: Run, isWanted: () => boolean): Promise<Kept | undefined> {
  const id = run.training_run_id;
  const heardAt = run.last_request_time;
  // Once the name is known, the others are not read any more.
  const name = kept.get(id)?.series?.name;
  const answer = await inTurn(async () => isWanted()
    ? queryMetrics(id, { names: name === undefined ? kMainNames : [name], points: kPoints }) : undefined);
  if (answer === undefined) return undefined;
  const found = { heardAt, askedAt: Date.now(), series: mainMetric(answer.series) };
  if (kept.size >= kMaxKept) kept.clear();
  kept.set(id, found);
  return found;
}

// Time until the answer may be another one; undefined: it stays.
function staleIn(run: Run, known: Kept | undefined): number | undefined {
  if (known === undefined || known.heardAt !== run.last_request_time) return 0;
  if (Date.now() - Date.parse(run.last_request_time) > kLiveMs) return undefined;
  return Math.max(0, known.askedAt + kFreshMs - Date.now());
}

// Asks only while the row is on the screen, and only if the run may have gone on since.
function useMain(run: Run, isVisible: boolean): Kept | undefined {
  const [shown, show] = useState(kept.get(run.training_run_id));
  useEffect(() => {
    const pause = isVisible ? staleIn(run, shown) : undefined;
    if (pause === undefined) return undefined;
    let isOver = false;
    let stop = (): void => {};
    const timer = setTimeout(() => {
      stop = askPatiently(async () => {
        const found = await load(run, () => !isOver);
        if (!isOver && found !== undefined) show(found);
      }, () => {});
    }, pause);
    return () => {
      isOver = true;
      clearTimeout(timer);
      stop();
    };
  }, [run.training_run_id, run.last_request_time, isVisible, shown]);
  return shown;
}

export function MainMetric({ run }: { run: Run }) {
  const [element, isVisible] = useVisible<HTMLSpanElement>();
  const series = useMain(run, isVisible)?.series;
  return <span class="main-metric" ref={element}>
    {series !== undefined && <>
      <Sparkline name={series.name} values={series.mean} />
      <span>{withUnit(series.last_value, series.unit)}<small>{series.name}</small></span>
    </>}
  </span>;
}
