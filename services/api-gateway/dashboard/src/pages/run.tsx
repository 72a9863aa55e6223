// One run: how it is, its curves, where its steps go, its requests, checkpoints and facts.
import type { ComponentChildren } from "preact";
import { getRun, listRunCheckpoints, type Run as RunRow, type Session } from "../api";
import { LineChart } from "../charts/line_chart";
import { withUnit } from "../charts/curves";
import { number, plural, seconds } from "../format";
import { type Head, listHeads, mainMetric, type Metrics } from "../metrics";
import { CheckpointTable } from "../parts/checkpoint_table";
import { Card, Copied, Facts, Figures, Loading, Problem, State, Time } from "../parts/basic";
import { MetricGroups } from "../parts/metric_groups";
import { Table } from "../parts/table";
import { useLiveHeads } from "../live_points";
import { usePoll } from "../poll";
import { place, runAddress } from "../router";
import { type Asked, listRequests, type Requests } from "../requests";
import { sessionOfRun } from "../run_session";
import { nameOf, sessionIn, stateOf } from "../run_names";
import { findQueued, type QueuedModel, waitOf } from "../status";

const kNumShown = 200;
const kTabs: [string, string][] = [["", "Charts"], ["requests", "Requests"], ["checkpoints", "Checkpoints"], ["config", "Config"]];

interface Loaded {
  run: RunRow;
  sessions: Map<string, Session>;
  requests: Requests;
  metrics: Metrics<Head>;
  // Undefined: nothing of it waits.
  queued: QueuedModel | undefined;
}

const isStep = (asked: Asked): boolean => asked.operation === "optim_step";
const isDone = (asked: Asked): boolean => asked.outcome !== "unfinished";
const kPatienceMs = 3000;
// True for a request that has not ended soon, so that its reason is worth a question.
const isLate = (asked: Asked): boolean => !isDone(asked) && Date.now() - Date.parse(asked.accepted_at) > kPatienceMs;

async function load(id: string): Promise<Loaded> {
  const [run, requests, metrics] = await Promise.all([getRun(id), listRequests(id), listHeads(id)]);
  const [sessions, queued] = await Promise.all([sessionOfRun(run),
    requests.asked.some(isLate) ? findQueued(id) : undefined]);
  return { run, sessions, requests, metrics, queued };
}
const spent = (asked: Asked, stage: string): number =>
  asked.stages.filter(({ name }) => name === stage).reduce((sum, { seconds: one }) => sum + one, 0);

// Percentage of the requests' time that they waited for the worker.
function waitShare(asked: Asked[]): string {
  const all = asked.reduce((sum, one) => sum + one.seconds, 0);
  const waited = asked.reduce((sum, one) => sum + spent(one, "queued"), 0);
  return all === 0 ? "–" : `${number(100 * waited / all)} %`;
}

// Counts of the requests that are listed, which may be the run's newest ones only.
function Now({ data: { requests: { asked, completeSince }, metrics } }: { data: Loaded }) {
  const done = asked.filter(isDone);
  const failed = done.filter(({ outcome }) => outcome.endsWith("_error")).length;
  const tokens = done.reduce((sum, one) => sum + one.tokens, 0);
  const newest = completeSince === null ? "" : ` of the newest ${plural(asked.length, "request")}`;
  const main = mainMetric(metrics.series);
  return <Figures items={[
    ...(main === undefined ? [] : [[main.name, <>{withUnit(main.last_value, main.unit)} <small>step {number(main.last_step)}</small></>]] as
      [string, ComponentChildren][]),
    [`Steps${newest}`, number(asked.filter(isStep).filter(isDone).length)],
    ["Tokens", number(tokens)],
    ["Requests", <>{number(done.length)} <small>{number(asked.length - done.length)} unfinished</small></>],
    ["Waited for the worker", waitShare(done)],
    ["Failed", number(failed)],
  ]} />;
}

// Why the run's requests wait, in the words of the queue.
function Waits({ queued }: { queued: QueuedModel }) {
  return <Card title="Why it waits" note={plural(queued.pending, "unfinished request")}>
    <p>{waitOf(queued)}</p>
    <p class="muted">Next is seq_id {queued.applied_seq + 1}{queued.group !== null && <>, in group <code>{queued.group}</code></>}.
      {" "}<a href="/ui/queue">The queue</a> and <a href="/ui/workers">the workers</a> show the rest.</p>
  </Card>;
}

const kStages = ["accept", "queued", "on worker", "commit", "deliver"];

function StageChart({ operation, asked }: { operation: string; asked: Asked[] }) {
  const shown = asked.slice(-kNumShown);
  const lines = kStages.map((name) => ({ name, values: shown.map((one) => spent(one, name)) }));
  return <Card title={operation} note={`seconds of each stage, ${plural(shown.length, "request")}`}>
    <LineChart xName="seq_id" xs={shown.map(({ seq_id }) => seq_id)} lines={lines} show={seconds} />
  </Card>;
}

// What goes on in the seconds of the newest requests, by operation.
function Stages({ requests: { asked } }: { requests: Requests }) {
  const operations = [...new Set(asked.map(({ operation }) => operation))];
  const drawn = operations.map((operation) =>
    ({ operation, of: asked.filter((one) => one.operation === operation && isDone(one)) }))
    .filter(({ of }) => of.length > 1);
  if (drawn.length === 0) return null;
  return <details class="group" open>
    <summary><h2>Where a step goes</h2> <span class="muted">{plural(drawn.length, "operation")}</span></summary>
    <div class="grid">{drawn.map(({ operation, of }) => <StageChart key={operation} operation={operation} asked={of} />)}</div>
  </details>;
}

function NoMetrics({ id }: { id: string }) {
  const point = '{"points": [{"name": "reward/mean", "step": 1, "value": 0.5}]}';
  return <Card title="No metrics yet">
    <p>Every number of a result becomes one: the loss of a <code>forward_backward</code>, the norm of the gradient of an
      {" "}<code>optim_step</code>. A program can add its own:</p>
    <Copied text={`curl ${location.origin}/api/v1/training_runs/${encodeURIComponent(id)}/metrics \\\n` +
      `  -H "X-API-Key: $TINKER_API_KEY" -H "Content-Type: application/json" -d '${point}'`} />
  </Card>;
}

function Charts({ id, data: { requests, metrics, run, sessions } }: { id: string; data: Loaded }) {
  return <>
    {metrics.series.length > 0
      ? <MetricGroups runs={[{ id, label: nameOf(run, sessions), place: 0, heads: metrics }]} />
      : <NoMetrics id={id} />}
    <Stages requests={requests} />
  </>;
}

function RequestTable({ requests }: { requests: Requests }) {
  if (requests.asked.length === 0) {
    return <Card title="No requests"><p>The engine keeps the last requests of each session, and none over a restart of its own.</p></Card>;
  }
  const newest = requests.asked.slice(-kNumShown).reverse();
  return <Card title="Requests" note={`the newest ${number(newest.length)}`}>
    {requests.completeSince !== null && <p class="muted">Requests up to <Time at={requests.completeSince} /> may be missing.</p>}
    <Table label="Requests" rows={newest} id={(asked) => asked.request_id} columns={[
      { name: "Operation", show: ({ operation, seq_id }) => <>{operation} <small>seq_id {seq_id}</small></> },
      { name: "Outcome", show: ({ outcome }) => outcome },
      { name: "Accepted", show: ({ accepted_at }) => <Time at={accepted_at} /> },
      { name: "Tokens", isNumber: true, show: ({ tokens }) => number(tokens) },
      { name: "Took", isNumber: true, show: (asked) => seconds(asked.seconds) },
      { name: "Longest stage", show: ({ stages }) => {
        const longest = stages.reduce((a, b) => b.seconds > a.seconds ? b : a, { name: "", seconds: 0 });
        return longest.name === "" ? "" : `${longest.name} ${seconds(longest.seconds)}`;
      } },
    ]} />
  </Card>;
}

function Checkpoints({ id }: { id: string }) {
  const [{ data, error }, again] = usePoll(id, () => listRunCheckpoints(id), 5000, ["checkpoints"]);
  if (data === undefined) return error === undefined ? <Loading /> : <Problem error={error} />;
  if (data.length === 0) {
    return <Card title="No checkpoints"><p><code>save_state</code> and <code>save_weights_for_sampler</code> make them.</p></Card>;
  }
  return <Card title="Checkpoints"><CheckpointTable checkpoints={data} changed={again} /></Card>;
}

function Config({ run, session }: { run: RunRow; session: Session | undefined }) {
  const metadata = Object.entries({ ...session?.user_metadata, ...run.user_metadata });
  return <div class="grid">
    <Card title="Run"><Facts items={[
      ["Run", <code>{run.training_run_id}</code>],
      ["Base model", <code>{run.base_model}</code>],
      ["LoRA rank", run.lora_rank ?? "no LoRA"],
      ["Owner", run.model_owner],
      ["Project", session?.project_id === undefined || session.project_id === "" ? "none" : session.project_id],
      ["Session since", session === undefined ? "unknown" : <Time at={session.created_at} />],
    ]} /></Card>
    <Card title="Metadata">{metadata.length === 0 ? <p class="muted">The program gave none (<code>user_metadata</code>).</p>
      : <Facts items={metadata.map(([name, value]) => [name, value])} />}</Card>
  </div>;
}

function Tab({ name, id, data }: { name: string; id: string; data: Loaded }) {
  if (name === "requests") return <RequestTable requests={data.requests} />;
  if (name === "checkpoints") return <Checkpoints id={id} />;
  if (name === "config") return <Config run={data.run} session={sessionIn(data.sessions, data.run)} />;
  return <Charts id={id} data={data} />;
}

function Shown({ id, data: read }: { id: string; data: Loaded }) {
  const data = { ...read, metrics: useLiveHeads(id, read.metrics) };
  const tab = place.value.query.get("tab") ?? "";
  const { mood, word } = stateOf(data.run, data.sessions);
  return <>
    <div>
      <h1>{nameOf(data.run, data.sessions)}</h1>
      <p class="lead"><State mood={mood}>{word}</State> · <code>{data.run.base_model}</code> · rank {data.run.lora_rank ?? "–"}
        {" "}· {data.run.model_owner} · last heard of <Time at={data.run.last_request_time} /></p>
    </div>
    {data.queued !== undefined && data.queued.pending > 0 && <Waits queued={data.queued} />}
    <Now data={data} />
    <nav class="tabs" aria-label="Run">{kTabs.map(([name, title]) =>
      <a key={name} href={runAddress(id) + (name === "" ? "" : `?tab=${name}`)}
        aria-current={name === tab ? "page" : undefined}>{title}</a>)}</nav>
    <Tab name={tab} id={id} data={data} />
  </>;
}

export function Run({ id }: { id: string }) {
  const [{ data, error }] = usePoll(id, () => load(id), 5000, [{ run: id }]);
  return <>
    {data === undefined && <h1>{id}</h1>}
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Shown id={id} data={data} />}
  </>;
}
