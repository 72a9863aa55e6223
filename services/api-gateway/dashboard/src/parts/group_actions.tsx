// What an operator can do with a group of workers: see what it holds, take it out of service, put it
// back, forget it, and move its models.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError } from "../api";
import { number, plural } from "../format";
import {
  drainGroup, eitherOf, type GroupModel, type GroupModels, isServedElsewhere, leftUndone, listGroupModels, moveModel,
  removeGroup, resumeGroup, takers,
} from "../groups";
import { usePoll } from "../poll";
import type { Group } from "../status";
import { useVisible } from "../visible";
import { Dialog, State } from "./basic";
import { Table } from "./table";

const kMaxModels = 50;

interface Change {
  title: string;
  // What will happen, to running requests above all.
  effects: string[];
  verb: string;
  isDanger?: boolean;
  apply: () => Promise<void>;
}

interface ConfirmProps {
  change: Change;
  onClose: (isDone: boolean) => void;
  children?: ComponentChildren;
}

function Confirm({ change, onClose, children }: ConfirmProps) {
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      await change.apply();
      onClose(true);
    } catch (thrown) {
      setError(thrown instanceof ApiError ? thrown.message : String(thrown));
      setBusy(false);
    }
  };
  return <Dialog title={change.title} onClose={() => onClose(false)}>
    {change.effects.map((effect) => <p key={effect}>{effect}</p>)}
    <form onSubmit={(event) => { event.preventDefault(); if (!isBusy) void submit(); }}>
      {children}
      {error !== "" && <p role="alert">{error}</p>}
      <div class="row">
        <button class={change.isDanger === true ? "danger" : "main"} disabled={isBusy}>{change.verb}</button>
        <button type="button" onClick={() => onClose(false)}>Cancel</button>
      </div>
    </form>
  </Dialog>;
}

const held = ({ num_models, pending }: GroupModels): string =>
  `It holds ${plural(num_models, "model")} with ${plural(pending, "unfinished request")}.`;

// Where the work goes, in words.
function placesOf(group: Group, groups: Group[]): string {
  const trained = takers(groups, group, "train");
  const sampled = takers(groups, group, "sample");
  if (eitherOf(trained) === eitherOf(sampled)) return `Models, new models and samples go to ${eitherOf(trained)}.`;
  return [trained.length > 0 ? `Models and new models go to ${eitherOf(trained)}.` : "",
    sampled.length > 0 ? `Samples go to ${eitherOf(sampled)}.` : ""].filter((text) => text !== "").join(" ");
}

function drainOf(group: Group, groups: Group[], holding: GroupModels): Change {
  const undone = leftUndone(groups, group);
  return {
    title: `Take ${group.group} out of service`,
    effects: [
      held(holding),
      "Requests that run now end here first. Then each model moves with its state; requests that wait move with it. " +
        "None is lost, fails or runs twice. A model answers a little later while it moves.",
      undone.length > 0
        ? `No other group that is ready can ${eitherOf(undone)} with ${group.base_model}: the server will refuse this.`
        : `${placesOf(group, groups)} When nothing is left here, the workers can be stopped.`,
    ],
    verb: "Take out of service",
    apply: () => drainGroup(group.group),
  };
}

const resumeOf = (group: Group): Change => ({
  title: `Put ${group.group} back into service`,
  effects: ["New models and samples come to it again. Models that have moved away stay where they are."],
  verb: "Put back into service",
  apply: () => resumeGroup(group.group),
});

// What happens to the models and requests of a group that is forgotten.
function fateOf(group: Group, groups: Group[]): string {
  const trained = takers(groups, group, "train");
  if (trained.length > 0) {
    return `Models are rebuilt in ${eitherOf(trained)} from their last snapshots, and their unfinished requests run there. None is lost.`;
  }
  return isServedElsewhere(groups, group)
    ? "No other group that trains is ready now: its models and their requests wait until one is."
    : `No other group serves ${group.base_model}: it is served no longer, and unfinished requests of its models fail.`;
}

function removalOf(group: Group, groups: Group[], holding: GroupModels): Change {
  return {
    title: `Forget ${group.group}`,
    effects: [held(holding), fateOf(group, groups), "Do this only if its workers have ended for good."],
    verb: "Forget this group",
    isDanger: true,
    apply: () => removeGroup(group.group),
  };
}

interface MoveProps {
  model: GroupModel;
  targets: string[];
  onClose: (isDone: boolean) => void;
}

function Move({ model, targets, onClose }: MoveProps) {
  const [target, setTarget] = useState(targets[0] ?? "");
  return <Confirm onClose={onClose} change={{
    title: "Move this model",
    effects: [`${model.training_run_id} of ${model.tenant} has ${plural(model.pending, "unfinished request")}. Those that ` +
      "run now end here first; the others wait and run in the new group. None is lost or runs twice."],
    verb: "Move",
    apply: () => moveModel(model.training_run_id, target),
  }}>
    <label>To group
      <select value={target} onChange={(event) => setTarget(event.currentTarget.value)}>
        {targets.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  </Confirm>;
}

interface ModelsProps {
  holding: GroupModels;
  targets: string[];
  move: (model: GroupModel) => void;
}

function Models({ holding: { models, num_models }, targets, move }: ModelsProps) {
  if (models.length === 0) return null;
  const rest = num_models > models.length ? `, ${number(models.length)} with the most requests are shown` : "";
  return <details>
    <summary><span class="row"><span>{plural(num_models, "model")}{rest}</span></span></summary>
    <Table label="Models" rows={models} id={({ training_run_id }) => training_run_id} columns={[
      { name: "Run", show: ({ training_run_id, tenant }) => <><code>{training_run_id}</code><small>{tenant}</small></> },
      { name: "State", show: ({ state, move_to, reason }) => <><State mood={state === "ready" ? "ok" : "warn"}>{state}</State>
        {move_to !== null && <small>moves to {move_to}</small>}{reason !== null && <small>{reason}</small>}</> },
      { name: "Unfinished", isNumber: true, show: ({ pending }) => number(pending) },
      { name: "Change", show: (model) => targets.length === 0 ? "" : <button type="button" class="small"
        aria-label={`Move ${model.training_run_id}`} onClick={() => move(model)}>Move…</button> },
    ]} />
  </details>;
}

export interface GroupActionsProps {
  group: Group;
  groups: Group[];
  // Called after a change.
  changed: () => void;
}

function Shown({ group, groups, changed }: GroupActionsProps) {
  const [{ data, error }, again] = usePoll(`models of ${group.group}`, () => listGroupModels(group.group, kMaxModels));
  const [change, setChange] = useState<Change | undefined>(undefined);
  const [moved, setMoved] = useState<GroupModel | undefined>(undefined);
  const close = (isDone: boolean): void => {
    setChange(undefined);
    setMoved(undefined);
    if (!isDone) return;
    again();
    changed();
  };
  if (data === undefined) return error === undefined || error.isPassing ? null : <p role="alert">{error.message}</p>;
  const targets = takers(groups, group, "train");
  return <>
    {group.drain === "draining" && <p role="status">Still here: {data.drain_left ?? "nothing"}.</p>}
    {group.drain === "drained" && <p role="status">Nothing is left here. Its workers can be stopped.</p>}
    <Models holding={data} targets={targets} move={setMoved} />
    <div class="row">
      {group.drain === null
        ? <button type="button" onClick={() => setChange(drainOf(group, groups, data))}>Take out of service</button>
        : <button type="button" onClick={() => setChange(resumeOf(group))}>Put back into service</button>}
      {group.num_ranks === 0 && <button type="button" class="danger"
        onClick={() => setChange(removalOf(group, groups, data))}>Forget this group</button>}
    </div>
    {change !== undefined && <Confirm change={change} onClose={close} />}
    {moved !== undefined && <Move model={moved} targets={targets} onClose={close} />}
  </>;
}

// Asks for a group's models only while its card is on the screen.
export function GroupActions(props: GroupActionsProps) {
  const [element, isVisible] = useVisible<HTMLDivElement>();
  return <div ref={element} class="actions">{isVisible && <Shown {...props} />}</div>;
}
