// Up to eight runs side by side: their last values, where their settings differ, their curves together.
import type { ComponentChildren } from "preact";
import { ApiError, getRun, namesOf, type Run as RunRow, type Session } from "../api";
import { seriesToken } from "../charts/canvas";
import { withUnit } from "../charts/curves";
import { filterOf } from "../charts/look_controls";
import { number, plural } from "../format";
import { type Head, kMaxRuns, listHeads, type Metrics } from "../metrics";
import { Card, Loading, Problem } from "../parts/basic";
import { type Metric, MetricGroups, metricsOf, type RunMetrics } from "../parts/metric_groups";
import { usePoll } from "../poll";
import { place, runAddress, setQuery } from "../router";
import { nameOf, sessionIn } from "../run_names";

const kPollMs = 10_000;
const kNumShown = 40;

interface Compared {
  runs: RunRow[];
  sessions: Map<string, Session>;
  heads: Metrics<Head>[];
  // Ids that this key cannot see.
  unknown: string[];
}

async function known(id: string): Promise<RunRow | undefined> {
  try {
    return await getRun(id);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

async function load(ids: string[]): Promise<Compared> {
  const found = await Promise.all(ids.map(known));
  const runs = found.filter((run) => run !== undefined);
  const [sessions, heads] = await Promise.all([namesOf(runs),
    Promise.all(runs.map(({ training_run_id }) => listHeads(training_run_id)))]);
  return { runs, sessions, heads, unknown: ids.filter((_, index) => found[index] === undefined) };
}

function idsOf(query: URLSearchParams): string[] {
  return [...new Set((query.get("runs") ?? "").split(",").map((id) => id.trim()).filter((id) => id !== ""))];
}

const without = (id: string): void => setQuery("runs", idsOf(place.value.query).filter((other) => other !== id).join(","));

function Swatch({ index }: { index: number }) {
  return <span class="swatch" style={{ "--series": `var(${seriesToken(index)})` }} />;
}

function RunHeads({ runs }: { runs: RunMetrics[] }) {
  return <>{runs.map(({ id, label, place: index }) =>
    <th key={id} scope="col" class="number"><Swatch index={index} /><bdi title={label}>{label}</bdi></th>)}</>;
}

function RunList({ data, runs }: { data: Compared; runs: RunMetrics[] }) {
  return <Card title="Runs">
    <ul class="runs">{data.runs.map((run, index) => {
      return <li key={run.training_run_id} class="row">
        <Swatch index={index} /><a href={runAddress(run.training_run_id)}>{runs[index]?.label}</a>
        <button type="button" class="small" aria-label={`Leave out ${runs[index]?.label}`} onClick={() => without(run.training_run_id)}>Leave out</button>
      </li>;
    })}</ul>
    {data.unknown.length > 0 && <p role="alert">Not to be seen with this key: {data.unknown.map((id) =>
      <code key={id}>{id} </code>)}</p>}
  </Card>;
}

function settingsOf(run: RunRow, session: Session | undefined): Map<string, string> {
  return new Map<string, string>([
    ["Base model", run.base_model], ["LoRA rank", String(run.lora_rank ?? "no LoRA")], ["Owner", run.model_owner],
    ["Project", session?.project_id ?? ""],
    ...Object.entries({ ...session?.user_metadata, ...run.user_metadata })
      .map(([name, value]): [string, string] => [`metadata: ${name}`, value]),
  ]);
}

function Differences({ data, runs }: { data: Compared; runs: RunMetrics[] }) {
  const settings = data.runs.map((run) => settingsOf(run, sessionIn(data.sessions, run)));
  const names = [...new Set(settings.flatMap((of) => [...of.keys()]))];
  const rows = names.filter((name) => new Set(settings.map((of) => of.get(name))).size > 1);
  return <Card title="Settings that differ" note={`${number(names.length - rows.length)} are the same`}>
    {rows.length === 0 ? <p class="muted">None. Metadata that the program gives (<code>user_metadata</code>) is compared too.</p>
      : <SideBySide runs={runs} rows={rows.map((name) => [name, settings.map((of) => of.get(name) ?? "–")])} label="Settings" />}
  </Card>;
}

function SideBySide({ label, runs, rows }: { label: string; runs: RunMetrics[]; rows: [string, ComponentChildren[]][] }) {
  return <div class="wide" role="group" aria-label={label} tabIndex={0}>
    <table>
      <thead><tr><td /><RunHeads runs={runs} /></tr></thead>
      <tbody>{rows.map(([name, values]) => <tr key={name}><th scope="row">{name}</th>
        {values.map((value, column) => <td key={runs[column]?.id} class="number">{value}</td>)}</tr>)}</tbody>
    </table>
  </div>;
}

function LastValues({ runs, metrics }: { runs: RunMetrics[]; metrics: Metric[] }) {
  const shown = metrics.slice(0, kNumShown);
  const valueOf = ({ of }: Metric, run: RunMetrics): ComponentChildren => {
    const head = of.find(({ run: { id } }) => id === run.id)?.head;
    return head === undefined ? "–" : <>{withUnit(head.last_value, head.unit)} <small>step {number(head.last_step)}</small></>;
  };
  return <Card title="Last values" note={shown.length < metrics.length ? `${number(shown.length)} of ${plural(metrics.length, "metric")}` : undefined}>
    <SideBySide label="Last values" runs={runs}
      rows={shown.map((metric) => [metric.name, runs.map((run) => valueOf(metric, run))])} />
  </Card>;
}

// Runs of the same name are told apart by their ids.
function labelOf(id: string, index: number, names: string[]): string {
  const name = names[index] ?? id;
  return names.filter((other) => other === name).length > 1 && name !== id ? `${name} (${id})` : name;
}

function Shown({ data }: { data: Compared }) {
  const { query } = place.value;
  const names = data.runs.map((run) => nameOf(run, data.sessions));
  const runs = data.runs.flatMap((run, index): RunMetrics[] => {
    const heads = data.heads[index];
    return heads === undefined ? [] : [{ id: run.training_run_id, label: labelOf(run.training_run_id, index, names), place: index, heads }];
  });
  const metrics = metricsOf(runs).filter(({ name }) => filterOf(query)(name));
  return <>
    <RunList data={data} runs={runs} />
    {runs.some(({ heads }) => heads.series.length > 0) ? <MetricGroups runs={runs} />
      : <Card title="No metrics yet"><p>None of these runs has a metric so far.</p></Card>}
    {metrics.length > 0 && <LastValues runs={runs} metrics={metrics} />}
    {runs.length > 1 && <Differences data={data} runs={runs} />}
  </>;
}

function Nothing() {
  return <Card title="No runs to compare"><p>Choose up to {kMaxRuns} of <a href="/ui/runs">the runs</a>.</p></Card>;
}

export function Compare() {
  const all = idsOf(place.value.query);
  const ids = all.slice(0, kMaxRuns);
  const [{ data, error }] = usePoll(`compare ${ids.join(",")}`, () => load(ids), kPollMs, ids.map((run) => ({ run })));
  return <>
    <h1>Compare</h1>
    {all.length > kMaxRuns && <p role="alert">{number(all.length)} runs are too many: these are the first {kMaxRuns}.</p>}
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {ids.length === 0 ? <Nothing /> : data === undefined ? error === undefined && <Loading /> : <Shown data={data} />}
  </>;
}
