// Curves of the machine over the last hour, day or week.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import { LineChart } from "../charts/line_chart";
import { number, plural } from "../format";
import type { Series } from "../metrics";
import { usePoll } from "../poll";
import { Card, Problem } from "./basic";

interface Answer {
  series: Series[];
}

const kWindows: [number, string][] = [[3600, "1 h"], [86_400, "1 d"], [7 * 86_400, "1 w"]];
const kPollMs = 15_000;
const kPoints = 240;

export interface MachineChartProps {
  title: string;
  // The service, the own tenant, or a group of workers.
  of: { of: "service" } | { of: "tenant" } | { of: "group"; group: string };
  // Names or patterns, and what each line is called.
  names: string;
  label?: (name: string) => string;
  show?: (value: number) => string;
}

// The lines on one axis of times; a line without a point there has a gap.
function linesOf({ series }: Answer, label: (name: string) => string) {
  const xs = [...new Set(series.flatMap(({ steps }) => steps))].sort((a, b) => a - b);
  const kStepSeconds = 15;
  const lines = series.map(({ name, steps, mean }) => {
    const at = new Map(steps.map((step, place) => [step, mean[place] ?? null]));
    return { name: label(name), values: xs.map((step) => at.get(step) ?? null) };
  });
  return { xs: xs.map((step) => step * kStepSeconds), lines };
}

export function MachineChart({ title, of, names, label = (name) => name, show = number }: MachineChartProps) {
  const seconds = useSignal(kWindows[0]?.[0] ?? 3600);
  const query = new URLSearchParams({ ...of, names, seconds: String(seconds.value), points: String(kPoints) }).toString();
  const [{ data, error }] = usePoll(query, () => call<Answer>("GET", `/api/v1/machine_metrics?${query}`), kPollMs);
  const note = <span class="row">{kWindows.map(([length, name]) => <button key={name} type="button" class="small"
    aria-pressed={seconds.value === length} aria-label={`${title}: the last ${name}`} onClick={() => { seconds.value = length; }}>{name}</button>)}</span>;
  if (error !== undefined && data === undefined) return <Problem error={error} />;
  const drawn = data === undefined ? undefined : linesOf(data, label);
  return <Card title={title} note={note}>
    {drawn === undefined || drawn.xs.length < 2
      ? <p class="chart muted">{drawn === undefined ? "" : `${plural(drawn.xs.length, "point")} so far; there is one every 15 s.`}</p>
      : <LineChart xName="time" isTime xs={drawn.xs} lines={drawn.lines} show={show} />}
  </Card>;
}
