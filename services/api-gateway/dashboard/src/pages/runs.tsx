// All runs of the tenant. Filters and order are in the address.
import { listRuns, type Run, sessionsOf, type Session } from "../api";
import { number, plural } from "../format";
import { kMaxRuns as kMaxCompared } from "../metrics";
import { Card, Copied, Loading, Problem, State, Time } from "../parts/basic";
import { MainMetric } from "../parts/main_metric";
import { type Column, Table } from "../parts/table";
import { usePoll } from "../poll";
import { place, runAddress, setQuery } from "../router";
import { nameOf, sessionIn, stateOf } from "../run_names";

const kMaxRuns = 1000;
const kRowsAtOnce = 100;
const kPollMs = 10_000;
const kStates = ["active", "finished", "failed", "interrupted", "ended", "broken"];

interface Listed {
  runs: Run[];
  total: number;
  sessions: Map<string, Session>;
}

async function load(): Promise<Listed> {
  const list = await listRuns(kMaxRuns);
  const sessions = await sessionsOf(list.training_runs);
  return { runs: list.training_runs, total: list.cursor.total_count, sessions };
}

function columnsOf(sessions: Map<string, Session>): Column<Run>[] {
  return [
    { name: "Name", show: (run) => <><a href={runAddress(run.training_run_id)}>{nameOf(run, sessions)}</a>
      <small><code>{run.training_run_id}</code></small></> },
    { name: "State", show: (run) => {
      const { mood, word } = stateOf(run, sessions);
      return <State mood={mood}>{word}</State>;
    } },
    { name: "Metric", show: (run) => <MainMetric run={run} /> },
    { name: "Base model", show: (run) => <code>{run.base_model}</code> },
    { name: "Project", show: (run) => sessionIn(sessions, run)?.project_id ?? "" },
    { name: "Rank", isNumber: true, show: (run) => run.lora_rank ?? "" },
    { name: "Last heard of", show: (run) => <Time at={run.last_request_time} /> },
  ];
}

const kOrders: Record<string, (a: Run, b: Run, sessions: Map<string, Session>) => number> = {
  name: (a, b, sessions) => nameOf(a, sessions).localeCompare(nameOf(b, sessions)),
  heard: (a, b) => Date.parse(b.last_request_time) - Date.parse(a.last_request_time),
};

function chosenRuns({ runs, sessions }: Listed, query: URLSearchParams): Run[] {
  const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter((word) => word !== "");
  const state = query.get("state") ?? "";
  const found = runs.filter((run) => {
    if (state !== "" && stateOf(run, sessions).word !== state) return false;
    const text = [nameOf(run, sessions), run.training_run_id, run.base_model,
      sessionIn(sessions, run)?.project_id ?? ""].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const order = kOrders[query.get("sort") ?? ""];
  return order === undefined ? found : found.sort((a, b) => order(a, b, sessions));
}

function Filters() {
  const { query } = place.value;
  return <div class="row" role="search">
    <input type="search" aria-label="Filter by name, id, model or project" placeholder="Filter: name, id, model, project"
      value={query.get("q") ?? ""} onInput={(event) => setQuery("q", event.currentTarget.value)} />
    <select aria-label="State" value={query.get("state") ?? ""} onChange={(event) => setQuery("state", event.currentTarget.value)}>
      <option value="">Every state</option>
      {kStates.map((state) => <option key={state} value={state}>{state}</option>)}
    </select>
    <select aria-label="Order" value={query.get("sort") ?? ""} onChange={(event) => setQuery("sort", event.currentTarget.value)}>
      <option value="">Newest first</option>
      <option value="heard">Last heard of first</option>
      <option value="name">By name</option>
    </select>
  </div>;
}

// Runs that are chosen to be compared, in the order in which they were.
const markedIn = (query: URLSearchParams): string[] => (query.get("marked") ?? "").split(",").filter((id) => id !== "");

function mark(id: string): void {
  const marked = markedIn(place.value.query);
  const others = marked.filter((other) => other !== id);
  if (others.length === marked.length && marked.length >= kMaxCompared) return;
  setQuery("marked", (others.length < marked.length ? others : [...marked, id]).join(","));
}

function Marked({ marked }: { marked: string[] }) {
  const isFull = marked.length >= kMaxCompared;
  return <p class="row" role="status">
    {marked.length > 1 && <a class="button main" href={`/ui/compare?runs=${encodeURIComponent(marked.join(","))}`}>
      Compare {plural(marked.length, "run")}</a>}
    {marked.length === 1 && "Choose another run to compare it with."}
    <button type="button" onClick={() => setQuery("marked", "")}>Choose none</button>
    {isFull && <span class="muted">{kMaxCompared} at most</span>}
  </p>;
}

function NoRuns() {
  return <Card title="No runs yet">
    <p>Each LoRA model that a program creates is a run. A name helps to find it again:</p>
    <Copied text={'tinker.ServiceClient(display_name="first try", project_id="my-project")'} />
  </Card>;
}

function Shown({ data }: { data: Listed }) {
  const { query } = place.value;
  const runs = chosenRuns(data, query);
  const numRows = Math.max(kRowsAtOnce, Number(query.get("rows")) || 0);
  const more = runs.length - numRows;
  const marked = markedIn(query);
  return <>
    <Filters />
    <p class="muted" role="status">{plural(runs.length, "run")}
      {data.total > data.runs.length && `, of the newest ${number(data.runs.length)} of ${number(data.total)}`}</p>
    {marked.length > 0 && <Marked marked={marked} />}
    {runs.length > 0 && <Card title="Runs">
      <Table label="Runs" columns={columnsOf(data.sessions)} rows={runs.slice(0, numRows)}
        id={(run) => run.training_run_id} address={(run) => runAddress(run.training_run_id)}
        marks={{ ids: marked, isFull: marked.length >= kMaxCompared, toggle: mark, label: (run) => `Compare ${nameOf(run, data.sessions)}` }} />
      {more > 0 && <button type="button" onClick={() => setQuery("rows", String(numRows + kRowsAtOnce))}>
        {number(more)} more</button>}
    </Card>}
  </>;
}

export function Runs() {
  const [{ data, error }] = usePoll("runs", load, kPollMs, ["runs", "checkpoints"]);
  return <>
    <h1>Runs</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading />
      : data.runs.length === 0 ? <NoRuns /> : <Shown data={data} />}
  </>;
}
