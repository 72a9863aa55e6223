// The first page: what is served, what goes on, what was used.
import { useMemo } from "preact/hooks";
import { listModels, listRuns, listStorage, listUsage, type Model, type Run, sessionsOf, type Session,
  type Storage, type UsageEvent } from "../api";
import { LineChart } from "../charts/line_chart";
import { bytes, number, plural } from "../format";
import { Card, Copied, Loading, Problem, State, Time } from "../parts/basic";
import { MainMetric } from "../parts/main_metric";
import { usePoll } from "../poll";
import { runAddress } from "../router";
import { nameOf, stateOf } from "../run_names";

const kNumRuns = 6;
const kHourMs = 3_600_000;
const kHours = 24;

interface Now {
  models: Model[];
  runs: Run[];
  numRuns: number;
  sessions: Map<string, Session>;
  storage: Storage[];
}

async function load(): Promise<Now> {
  const [models, list, storage] = await Promise.all([listModels(), listRuns(kNumRuns), listStorage()]);
  const sessions = await sessionsOf(list.training_runs);
  return { models, runs: list.training_runs, numRuns: list.cursor.total_count, sessions, storage };
}

function sentence({ models, runs, numRuns, sessions, storage }: Now): string {
  const active = runs.filter((run) => stateOf(run, sessions).word === "active").length;
  const ready = models.filter((model) => model.ready).length;
  const kept = storage.reduce((sum, row) => sum + row.size_bytes, 0);
  const count = storage.reduce((sum, row) => sum + row.checkpoint_count, 0);
  return `${plural(numRuns, "run")}, ${active} of the newest active. ` +
    `${ready} of ${plural(models.length, "base model")} ready. ` +
    `${plural(count, "checkpoint")} ${count === 1 ? "holds" : "hold"} ${bytes(kept)}.`;
}

function Models({ models }: { models: Model[] }) {
  return <Card title="Base models">
    <table class="cards">
      <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col" class="number">Context</th>
        <th scope="col" class="number">Largest rank</th></tr></thead>
      <tbody>{models.map((model) => <tr key={model.model_name}>
        <td data-label="Name"><code>{model.model_name}</code></td>
        <td data-label="State"><State mood={model.ready ? "ok" : "warn"}>{model.ready ? "ready" : "waits"}</State>
          {model.reason !== null && <small>{model.reason}</small>}</td>
        <td data-label="Context" class="number">{number(model.max_context_length)}</td>
        <td data-label="Largest rank" class="number">{number(model.max_lora_rank)}</td>
      </tr>)}</tbody>
    </table>
  </Card>;
}

function NewestRuns({ now: { runs, sessions, numRuns } }: { now: Now }) {
  return <Card title="Newest runs" note={<a href="/ui/runs">all {number(numRuns)}</a>}>
    <table class="cards">
      <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Metric</th>
        <th scope="col">Last heard of</th></tr></thead>
      <tbody>{runs.map((run) => {
        const { mood, word } = stateOf(run, sessions);
        return <tr key={run.training_run_id}>
          <td data-label="Name"><a href={runAddress(run.training_run_id)}>{nameOf(run, sessions)}</a></td>
          <td data-label="State"><State mood={mood}>{word}</State></td>
          <td data-label="Metric"><MainMetric run={run} /></td>
          <td data-label="Last heard of"><Time at={run.last_request_time} /></td>
        </tr>;
      })}</tbody>
    </table>
  </Card>;
}

function FirstSteps() {
  return <Card title="No runs yet">
    <p>A Tinker program makes one. Let it talk to this server:</p>
    <Copied text={`export TINKER_BASE_URL=${location.origin}\nexport TINKER_API_KEY=tml-…`} />
    <Copied text="pip install tinker" />
    <Copied text={'import tinker\ntraining = tinker.ServiceClient().create_lora_training_client(base_model="…", rank=32)'} />
  </Card>;
}

const kKinds: [string, (event: UsageEvent) => boolean][] = [
  ["training", ({ event_info }) => event_info.type === "training"],
  ["prefill", ({ event_info }) => event_info.type === "sampling_prefill"],
  ["sampled", ({ event_info }) => event_info.type === "sampling_sample"],
];

function Usage() {
  const [{ data, error }] = usePoll("usage", () => {
    const end = Math.floor(Date.now() / kHourMs) * kHourMs;
    return listUsage(new Date(end - (kHours - 1) * kHourMs), new Date(end + kHourMs));
  }, 60_000);
  const drawn = useMemo(() => {
    if (data === undefined) return undefined;
    const end = Math.floor(Date.now() / kHourMs) * 3600;
    const xs = Array.from({ length: kHours }, (_, hour) => end - (kHours - 1 - hour) * 3600);
    const lines = kKinds.map(([name, isOf]) => {
      const values = new Array<number>(kHours).fill(0);
      for (const event of data.filter(isOf)) {
        const place = xs.indexOf(Date.parse(event.bucket_start) / 1000);
        if (place >= 0) values[place] = (values[place] ?? 0) + event.event_info.token_count;
      }
      return { name, values };
    });
    return { xs, lines };
  }, [data]);
  if (error !== undefined && data === undefined) return <Problem error={error} />;
  if (drawn === undefined) return null;
  return <Card title="Tokens by hour" note="your tenant, last 24 h">
    <LineChart xName="hour" xs={drawn.xs} isTime lines={drawn.lines} />
  </Card>;
}

export function Overview() {
  const [{ data, error }] = usePoll("overview", load, 5000, ["runs", "checkpoints", "workers"]);
  return <>
    <h1>Overview</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <>
      <p class="lead">{sentence(data)}</p>
      <div class="grid">
        {data.runs.length === 0 ? <FirstSteps /> : <NewestRuns now={data} />}
        <Models models={data.models} />
      </div>
      <Usage />
    </>}
  </>;
}
