// What a tenant used: tokens over time, and sums by base model and project.
import { useMemo } from "preact/hooks";
import { listUsageOf } from "../administration";
import type { UsageEvent } from "../api";
import { LineChart } from "../charts/line_chart";
import { number } from "../format";
import { TenantField } from "../parts/administration";
import { Card, Copied, Figures, Loading, Problem } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place, setQuery } from "../router";

const kPollMs = 60_000;
const kHourMs = 3_600_000;
const kPeriods: [string, string, number][] = [["", "Last 24 h", 24], ["7d", "Last 7 days", 7 * 24], ["14d", "Last 14 days", 14 * 24]];

interface Sums {
  training: number;
  prefill: number;
  cached: number;
  sampled: number;
  checkpoints: number;
  gigabyteHours: number;
}

const none = (): Sums => ({ training: 0, prefill: 0, cached: 0, sampled: 0, checkpoints: 0, gigabyteHours: 0 });

// Events of one kind have only the members of that kind.
function add(sums: Sums, { event_info: info }: UsageEvent): void {
  switch (info.type) {
    case "training": sums.training += info.token_count; break;
    case "sampling_prefill": sums[info.cached ? "cached" : "prefill"] += info.token_count; break;
    case "sampling_sample": sums.sampled += info.token_count; break;
    case "checkpoint": sums.checkpoints += info.count; break;
    case "storage": sums.gigabyteHours += info.gigabyte_hours; break;
  }
}

interface Row extends Sums {
  model: string;
  project: string;
}

function rowsOf(events: UsageEvent[]): Row[] {
  const rows = new Map<string, Row>();
  for (const event of events) {
    const [model, project] = [event.base_model ?? "", event.project_id ?? ""];
    const name = `${model}\n${project}`;
    const row = rows.get(name) ?? { model, project, ...none() };
    rows.set(name, row);
    add(row, event);
  }
  return [...rows.values()].sort((a, b) => b.training + b.prefill + b.sampled - (a.training + a.prefill + a.sampled));
}

const kLines: [string, (sums: Sums) => number][] = [
  ["training", ({ training }) => training], ["prefill", ({ prefill, cached }) => prefill + cached], ["sampled", ({ sampled }) => sampled],
];

function linesOf(events: UsageEvent[], end: number, hours: number) {
  const xs = Array.from({ length: hours }, (_, hour) => end / 1000 - (hours - 1 - hour) * 3600);
  const sums = xs.map(none);
  for (const event of events) {
    const hour = sums[(Date.parse(event.bucket_start) / 1000 - (xs[0] ?? 0)) / 3600];
    if (hour !== undefined) add(hour, event);
  }
  return { xs, lines: kLines.map(([name, of]) => ({ name, values: sums.map(of) })) };
}

function Nothing() {
  return <Card title="Nothing was used">
    <p>Training and sampling are counted with each result. A Tinker program makes the first:</p>
    <Copied text={`export TINKER_BASE_URL=${location.origin}\nexport TINKER_API_KEY=tml-…`} />
  </Card>;
}

function Counted({ events, end, hours }: { events: UsageEvent[]; end: number; hours: number }) {
  const drawn = useMemo(() => linesOf(events, end, hours), [events, end, hours]);
  const rows = useMemo(() => rowsOf(events), [events]);
  const sum = useMemo(() => {
    const all = none();
    for (const event of events) add(all, event);
    return all;
  }, [events]);
  if (events.length === 0) return <Nothing />;
  return <>
    <Figures items={[
      ["Tokens trained", number(sum.training)], ["Prompt tokens computed", number(sum.prefill)],
      ["Prompt tokens from the cache", number(sum.cached)], ["Tokens sampled", number(sum.sampled)],
      ["Checkpoints", number(sum.checkpoints)], ["Storage", <>{number(sum.gigabyteHours)} <small>GB h</small></>],
    ]} />
    <Card title="Tokens by hour"><LineChart xName="hour" xs={drawn.xs} isTime lines={drawn.lines} /></Card>
    <Card title="By base model and project">
      <Table label="Usage" rows={rows} id={({ model, project }) => `${model}\n${project}`} columns={[
        { name: "Base model", show: ({ model }) => model === "" ? "storage" : <code>{model}</code> },
        { name: "Project", show: ({ project }) => project === "" ? "none" : project },
        { name: "Trained", isNumber: true, show: ({ training }) => number(training) },
        { name: "Prefill", isNumber: true, show: ({ prefill }) => number(prefill) },
        { name: "Cached", isNumber: true, show: ({ cached }) => number(cached) },
        { name: "Sampled", isNumber: true, show: ({ sampled }) => number(sampled) },
        { name: "Checkpoints", isNumber: true, show: ({ checkpoints }) => number(checkpoints) },
        { name: "GB h", isNumber: true, show: ({ gigabyteHours }) => number(gigabyteHours) },
      ]} />
    </Card>
  </>;
}

export function Usage() {
  const { query } = place.value;
  const tenant = query.get("tenant") ?? "";
  const [period, , hours] = kPeriods.find(([name]) => name === query.get("period")) ?? ["", "", 24] as const;
  const [{ data, error }] = usePoll(`usage ${hours} ${tenant}`, async () => {
    const end = Math.floor(Date.now() / kHourMs) * kHourMs;
    return { end, events: await listUsageOf(tenant, new Date(end - (hours - 1) * kHourMs), new Date(end + kHourMs)) };
  }, kPollMs);
  return <>
    <h1>Usage</h1>
    <div class="row" role="search">
      <select aria-label="Period" value={period} onChange={(event) => setQuery("period", event.currentTarget.value)}>
        {kPeriods.map(([name, label]) => <option key={name} value={name}>{label}</option>)}
      </select>
      <TenantField />
    </div>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Counted events={data.events} end={data.end} hours={hours} />}
  </>;
}
