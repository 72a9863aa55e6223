// What works and what does not, in one table.
import { listModels, type Model } from "../api";
import { number, plural } from "../format";
import { Card, Loading, type Mood, Problem, State, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { getStatus, moodOf, reasonOf, type Status, sumOf, wordOf } from "../status";

interface Loaded {
  status: Status;
  models: Model[];
}

interface Check {
  name: string;
  mood: Mood;
  word: string;
  detail: string;
}

async function load(): Promise<Loaded> {
  const [status, models] = await Promise.all([getStatus(1), listModels()]);
  return { status, models };
}

function checksOf({ status, models }: Loaded): Check[] {
  const waiting = models.filter(({ ready }) => !ready);
  const troubled = status.groups.filter((group) => moodOf(group) !== "ok");
  const { waiting: numWaiting, running } = sumOf(status.queues.all);
  return [
    { name: "Gateway", mood: "ok", word: "answers", detail: location.host },
    { name: "Engine", mood: "ok", word: "leads", detail: `version ${status.version}, term ${number(status.term)}` },
    { name: "Store", mood: status.refusal === null ? "ok" : "bad", word: status.refusal === null ? "accepts work" : "refuses work",
      detail: status.refusal ?? "" },
    { name: "Base models", mood: models.length === 0 || waiting.length > 0 ? "warn" : "ok",
      word: `${models.length - waiting.length} of ${models.length} ready`, detail: waiting.map(({ model_name }) => model_name).join(", ") },
    ...troubled.map((group): Check => ({ name: `Group ${group.group}`, mood: moodOf(group),
      word: wordOf(group), detail: reasonOf(group) })),
    { name: "Groups", mood: status.groups.length === 0 || troubled.length > 0 ? "warn" : "ok",
      word: `${status.groups.length - troubled.length} of ${status.groups.length} ready`, detail: "" },
    { name: "Queue", mood: "ok", word: plural(numWaiting + running, "unfinished request"), detail: `${number(running)} sent to a worker` },
  ];
}

function Shown({ data }: { data: Loaded }) {
  const checks = checksOf(data);
  const wrong = checks.filter(({ mood }) => mood !== "ok").length;
  return <>
    <p class="lead">{wrong === 0 ? "Everything works." : `${plural(wrong, "thing")} to look at.`}
      {" "}Read <Time at={data.status.read_at} />.</p>
    <Card title="Checks">
      <Table label="Checks" rows={checks} id={({ name }) => name} columns={[
        { name: "Part", show: ({ name }) => name },
        { name: "State", show: ({ mood, word }) => <State mood={mood}>{word}</State> },
        { name: "Detail", show: ({ detail }) => detail },
      ]} />
    </Card>
  </>;
}

export function Health() {
  const [{ data, error }] = usePoll("health", load, 5000, ["workers"]);
  return <>
    <h1>Health</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Shown data={data} />}
  </>;
}
