// What waits and what runs: of everybody in sum, and of each live run of the tenant.
import { namesOf, type Session } from "../api";
import { number, plural } from "../format";
import { Card, Figures, Loading, Problem, State } from "../parts/basic";
import { MachineChart } from "../parts/machine_chart";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { runAddress } from "../router";
import { displayNameOf } from "../run_names";
import { getStatus, type Status, sumOf, waitOf } from "../status";

const kMaxModels = 200;

interface Loaded {
  status: Status;
  sessions: Map<string, Session>;
}

async function load(): Promise<Loaded> {
  const status = await getStatus(kMaxModels);
  return { status, sessions: await namesOf(status.models) };
}

function Sums({ status: { queues } }: { status: Status }) {
  const all = sumOf(queues.all);
  const own = sumOf(queues.own);
  const total = all.waiting + all.running;
  return <Figures items={[
    ["Waiting", number(all.waiting)],
    ["Sent to a worker", number(all.running)],
    ["Yours waiting", number(own.waiting)],
    ["Yours sent to a worker", number(own.running)],
    ["Your share", total === 0 ? "–" : `${number(100 * (own.waiting + own.running) / total)} %`],
  ]} />;
}

function Operations({ status: { queues } }: { status: Status }) {
  if (queues.all.length === 0) return <Card title="Nothing waits"><p>No request of any tenant is unfinished.</p></Card>;
  const own = new Map(queues.own.map((queue) => [queue.operation, queue]));
  return <Card title="By operation" note="of all tenants, and of yours">
    <Table label="By operation" rows={queues.all} id={({ operation }) => operation} columns={[
      { name: "Operation", show: ({ operation }) => operation },
      { name: "Waiting", isNumber: true, show: ({ waiting }) => number(waiting) },
      { name: "Sent to a worker", isNumber: true, show: ({ running }) => number(running) },
      { name: "Yours waiting", isNumber: true, show: ({ operation }) => number(own.get(operation)?.waiting ?? 0) },
      { name: "Yours sent", isNumber: true, show: ({ operation }) => number(own.get(operation)?.running ?? 0) },
    ]} />
  </Card>;
}

function Models({ data: { status, sessions } }: { data: Loaded }) {
  const { models, num_models } = status;
  if (models.length === 0) return <Card title="No live runs"><p>A run is live from its creation until its program ends or unloads it.</p></Card>;
  return <Card title="Your live runs" note={models.length < num_models
    ? `${number(models.length)} of ${plural(num_models, "run")}, those with the most requests` : plural(num_models, "run")}>
    <Table label="Your live runs" rows={models} id={({ training_run_id }) => training_run_id}
      address={({ training_run_id }) => runAddress(training_run_id)} columns={[
        { name: "Run", show: ({ training_run_id: id }) => <><a href={runAddress(id)}>{displayNameOf(id, sessions)}</a>
          <small><code>{id}</code></small></> },
        { name: "State", show: ({ state }) => <State mood={state === "ready" ? "ok" : "warn"}>{state}</State> },
        { name: "Unfinished", isNumber: true, show: ({ pending }) => number(pending) },
        { name: "Next seq_id", isNumber: true, show: ({ applied_seq }) => applied_seq + 1 },
        { name: "Group", show: ({ group }) => group ?? "none yet" },
        { name: "Waits for", show: waitOf },
      ]} />
  </Card>;
}

export function Queue() {
  const [{ data, error }] = usePoll("queue", load, 2000, ["queue", "runs"]);
  return <>
    <h1>Queue</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <>
      {data.status.refusal !== null && <p role="alert">No work is accepted: {data.status.refusal}</p>}
      <Sums status={data.status} />
      <Operations status={data.status} />
      <div class="grid">
        <MachineChart title="Queue" of={{ of: "service" }} names="queue/waiting,queue/running" label={(name) => name.replace("queue/", "")} />
        <MachineChart title="Yours" of={{ of: "tenant" }} names="queue/waiting,queue/running" label={(name) => name.replace("queue/", "")} />
        <MachineChart title="Your share" of={{ of: "tenant" }} names="queue/share" label={() => "of all unfinished"}
          show={(share) => `${number(100 * share)} %`} />
      </div>
      <Models data={data} />
    </>}
  </>;
}
