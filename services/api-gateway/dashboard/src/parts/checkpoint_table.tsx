// Checkpoints, with what can be done to them.
import { useState } from "preact/hooks";
import { ApiError, type Checkpoint, deleteCheckpoint, publishCheckpoint, runOf } from "../api";
import { bytes } from "../format";
import { runAddress } from "../router";
import { Dialog, State, Time } from "./basic";
import { CheckpointUse } from "./checkpoint_use";
import { Table } from "./table";

interface Change {
  checkpoint: Checkpoint;
  kind: "delete" | "publish" | "unpublish";
}

const kTexts = {
  delete: ["Delete this checkpoint", "Its files are removed for good. Runs and samplers that need it fail from then on.", "Delete"],
  publish: ["Publish this checkpoint", "Every key of this server may then load it.", "Publish"],
  unpublish: ["Unpublish this checkpoint", "Keys of other tenants can no longer load it.", "Unpublish"],
} as const;

const apply = ({ checkpoint, kind }: Change): Promise<void> =>
  kind === "delete" ? deleteCheckpoint(checkpoint) : publishCheckpoint(checkpoint, kind === "publish");

function Confirm({ change, onClose }: { change: Change; onClose: (isDone: boolean) => void }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [title, loss, verb] = kTexts[change.kind];
  const name = change.checkpoint.checkpoint_id.split("/")[1] ?? "";
  const mayGo = !isBusy && (change.kind !== "delete" || typed === name);
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      await apply(change);
      onClose(true);
    } catch (thrown) {
      setError(thrown instanceof ApiError ? thrown.message : String(thrown));
      setBusy(false);
    }
  };
  return <Dialog title={title} onClose={() => onClose(false)}>
    <p><code>{change.checkpoint.tinker_path}</code></p>
    <p>{loss}</p>
    <form onSubmit={(event) => { event.preventDefault(); if (mayGo) void submit(); }}>
      {change.kind === "delete" && <label>Type its name, {name}
        <input value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
      </label>}
      {error !== "" && <p role="alert">{error}</p>}
      <div class="row">
        <button class={change.kind === "delete" ? "danger" : "main"} disabled={!mayGo}>{verb}</button>
        <button type="button" onClick={() => onClose(false)}>Cancel</button>
      </div>
    </form>
  </Dialog>;
}

export interface CheckpointTableProps {
  checkpoints: Checkpoint[];
  withRun?: boolean;
  // Called after a change.
  changed: () => void;
}

export function CheckpointTable({ checkpoints, withRun = false, changed }: CheckpointTableProps) {
  const [change, setChange] = useState<Change | undefined>(undefined);
  const [used, setUsed] = useState<Checkpoint | undefined>(undefined);
  const runColumn = { name: "Run", show: (row: Checkpoint) => <a href={runAddress(runOf(row))}><code>{runOf(row)}</code></a> };
  return <>
    <Table label="Checkpoints" rows={checkpoints} id={(row) => row.tinker_path} columns={[
      { name: "Name", show: (row) => <>{row.checkpoint_id.split("/")[1]}<small>{row.checkpoint_type}</small></> },
      ...(withRun ? [runColumn] : []),
      { name: "State", show: (row) => row.missing ? <State mood="bad">files missing</State>
        : row.public ? <State mood="warn">published</State> : <State mood="ok">kept</State> },
      { name: "Size", isNumber: true, show: (row) => row.size_bytes === null ? "" : bytes(row.size_bytes) },
      { name: "Saved", show: (row) => <Time at={row.time} /> },
      { name: "Expires", show: (row) => row.expires_at === null ? "never" : <Time at={row.expires_at} /> },
      { name: "Change", show: (row) => <span class="row">
        <button type="button" class="small" onClick={() => setUsed(row)}>Use…</button>
        <button type="button" class="small" onClick={() => setChange({ checkpoint: row, kind: row.public ? "unpublish" : "publish" })}>
          {row.public ? "Unpublish" : "Publish"}</button>
        <button type="button" class="small danger" onClick={() => setChange({ checkpoint: row, kind: "delete" })}>Delete</button>
      </span> },
    ]} />
    {change !== undefined && <Confirm change={change} onClose={(isDone) => {
      setChange(undefined);
      if (isDone) changed();
    }} />}
    {used !== undefined && <CheckpointUse checkpoint={used} onClose={(isChanged) => {
      setUsed(undefined);
      if (isChanged) changed();
    }} />}
  </>;
}
