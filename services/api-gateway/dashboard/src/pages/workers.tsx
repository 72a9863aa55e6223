// Groups of workers: for administrators with the memory of their ranks, for operators with what they
// can do.
import { bytes, number, plural } from "../format";
import { Card, Facts, Loading, Problem, State } from "../parts/basic";
import { GroupActions } from "../parts/group_actions";
import { MachineChart } from "../parts/machine_chart";
import { usePoll } from "../poll";
import { isOperator } from "../session";
import { getStatus, type Group, moodOf, type Rank, reasonOf, type Status, wordOf } from "../status";

type Memory = NonNullable<Rank["memory"]>;

const percent = (part: number, whole: number): number => whole === 0 ? 0 : Math.min(100, 100 * part / whole);

// A bar of one colour for each owner. The table below it has the same numbers.
function Bar({ memory, label }: { memory: Memory; label: string }) {
  return <div class="stack" role="img" aria-label={label}>
    {memory.shares.map(({ owner, used_bytes }, index) => <i key={owner}
      style={{ width: `${percent(used_bytes, memory.limit_bytes)}%`, background: `var(--series-${index % 8 + 1})` }} />)}
  </div>;
}

function RankMemory({ rank: { rank, device, memory } }: { rank: Rank }) {
  if (memory === null) return <p class="muted">Rank {rank} on {device}: loads its base model.</p>;
  const sum = `${bytes(memory.used_bytes)} of ${bytes(memory.limit_bytes)}`;
  return <details>
    <summary><span class="row"><span>Rank {rank} on <code>{device}</code></span><span class="muted">{sum}</span></span>
      <Bar memory={memory} label={`Memory of rank ${rank}: ${sum}`} /></summary>
    <table>
      <thead><tr><th scope="col">Owner</th><th scope="col" class="number">Used</th><th scope="col" class="number">Limit</th></tr></thead>
      <tbody>{memory.shares.map(({ owner, used_bytes, limit_bytes }, index) => <tr key={owner}>
        <th scope="row"><span class="swatch" style={{ "--series": `var(--series-${index % 8 + 1})` }} />{owner}</th>
        <td class="number">{bytes(used_bytes)}</td>
        <td class="number">{limit_bytes === 0 ? "–" : bytes(limit_bytes)}</td>
      </tr>)}</tbody>
    </table>
  </details>;
}

interface ShownProps {
  status: Status;
  isOperator: boolean;
  // Called after a change.
  changed: () => void;
}

function GroupCard({ group, status, isOperator, changed }: ShownProps & { group: Group }) {
  const reason = reasonOf(group);
  return <Card title={group.group} note={<State mood={moodOf(group)}>{wordOf(group)}</State>}>
    {reason !== "" && <p>{reason}</p>}
    <Facts items={[
      ["Base model", <code>{group.base_model}</code>],
      ["Serves", group.role === null ? "nothing at present" : group.role === "both" ? "training and sampling" : group.role],
      ["Ranks", number(group.num_ranks)],
      ["Formed", plural(group.epoch, "time")],
    ]} />
    {group.ranks?.map((rank) => <RankMemory key={rank.rank} rank={rank} />)}
    {isOperator && <GroupActions group={group} groups={status.groups} changed={changed} />}
  </Card>;
}

function Shown(props: ShownProps) {
  const { groups } = props.status;
  if (groups.length === 0) {
    return <Card title="No workers"><p>None has attached yet. <code>lathe up</code> starts one on this machine; see
      {" "}<code>docs/operations.md</code> for workers on other machines.</p></Card>;
  }
  const ready = groups.filter((group) => group.state === "ready").length;
  const ranks = groups.reduce((sum, { num_ranks }) => sum + num_ranks, 0);
  return <>
    <p class="lead">{ready} of {plural(groups.length, "group")} ready, {plural(ranks, "rank")} attached.
      {ranks > 0 && groups.every(({ ranks: shown }) => shown === undefined) && " A key with the scope admin sees the ranks' memory."}</p>
    <div class="grid">{groups.map((group) => <GroupCard key={group.group} group={group} {...props} />)}</div>
    <div class="grid">{groups.filter(({ ranks: shown }) => shown !== undefined).flatMap(({ group }) => [
      <MachineChart key={`${group} memory`} title={`Memory of ${group}`} of={{ of: "group", group }} names="memory/*"
        label={(name) => name.replace(/^memory\/|_bytes$/g, "")} show={bytes} />,
      <MachineChart key={`${group} work`} title={`Work of ${group}`} of={{ of: "group", group }} names="work/*"
        label={(name) => name.replace(/^work\//, "").replaceAll("_", " ")} />,
    ])}</div>
  </>;
}

export function Workers() {
  const [{ data, error }, again] = usePoll("workers", () => getStatus(1), 5000, ["workers"]);
  return <>
    <h1>Workers</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Shown status={data} isOperator={isOperator()} changed={again} />}
  </>;
}
