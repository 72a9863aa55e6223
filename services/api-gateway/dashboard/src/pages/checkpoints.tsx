// All checkpoints of the tenant, newest first.
import { type Checkpoint, listCheckpoints, listStorage, type Storage } from "../api";
import { bytes, number, plural } from "../format";
import { Card, Copied, Loading, Problem } from "../parts/basic";
import { CheckpointTable } from "../parts/checkpoint_table";
import { usePoll } from "../poll";
import { place, setQuery } from "../router";

const kMaxRows = 1000;
const kPollMs = 10_000;

interface Listed {
  checkpoints: Checkpoint[];
  total: number;
  storage: Storage[];
}

async function load(): Promise<Listed> {
  const [list, storage] = await Promise.all([listCheckpoints(kMaxRows), listStorage()]);
  return { checkpoints: list.checkpoints, total: list.cursor.total_count, storage };
}

function Empty() {
  return <Card title="No checkpoints yet">
    <p>A training client saves them:</p>
    <Copied text={'training.save_state("step-100").result()\ntraining.save_weights_for_sampler("step-100").result()'} />
  </Card>;
}

function Shown({ data, changed }: { data: Listed; changed: () => void }) {
  const text = place.value.query.get("q") ?? "";
  const shown = data.checkpoints.filter((row) => row.tinker_path.toLowerCase().includes(text.toLowerCase()));
  const held = data.storage.reduce((sum, row) => sum + row.size_bytes, 0);
  return <>
    <div class="row" role="search">
      <input type="search" aria-label="Filter by name, kind or run" placeholder="Filter: name, kind, run" value={text}
        onInput={(event) => setQuery("q", event.currentTarget.value)} />
    </div>
    <p class="muted" role="status">{plural(shown.length, "checkpoint")}
      {data.total > data.checkpoints.length && `, of the newest ${number(data.checkpoints.length)} of ${number(data.total)}`}
      ; all hold {bytes(held)}</p>
    {shown.length > 0 && <Card title="Checkpoints"><CheckpointTable checkpoints={shown} withRun changed={changed} /></Card>}
  </>;
}

export function Checkpoints() {
  const [{ data, error }, again] = usePoll("checkpoints", load, kPollMs, ["checkpoints"]);
  return <>
    <h1>Checkpoints</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading />
      : data.total === 0 ? <Empty /> : <Shown data={data} changed={again} />}
  </>;
}
