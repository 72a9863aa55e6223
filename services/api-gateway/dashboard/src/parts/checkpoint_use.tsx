// What can be done with a checkpoint without changing its files: download it, load it, and say how
// long it stays.
import { useState } from "preact/hooks";
import { ApiError, type Checkpoint } from "../api";
import { archiveUrl, commandsFor, setTtl } from "../checkpoints";
import { bytes } from "../format";
import { Copied, Dialog, Time } from "./basic";

const kDayS = 86_400;
// Names and seconds. The first one is no change.
const kLifetimes: [string, number | null][] = [
  ["as it is", null], ["until somebody deletes it", null], ["for 1 day", kDayS], ["for 7 days", 7 * kDayS], ["for 30 days", 30 * kDayS],
];

const messageOf = (thrown: unknown): string => thrown instanceof ApiError ? thrown.message : String(thrown);

interface UseProps {
  checkpoint: Checkpoint;
  onClose: (isChanged: boolean) => void;
}

export function CheckpointUse({ checkpoint, onClose }: UseProps) {
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [lifetime, setLifetime] = useState(0);
  const attempt = async (change: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await change();
    } catch (thrown) {
      setError(messageOf(thrown));
    }
    setBusy(false);
  };
  const download = (): Promise<void> => attempt(async () => location.assign(await archiveUrl(checkpoint)));
  const keep = (): Promise<void> => attempt(async () => {
    await setTtl(checkpoint, kLifetimes[lifetime]?.[1] ?? null);
    onClose(true);
  });
  return <Dialog title="Use this checkpoint" onClose={() => onClose(false)}>
    <p><code>{checkpoint.tinker_path}</code></p>
    {commandsFor(checkpoint).map(([name, command]) => <div key={name}><h2>{name}</h2><Copied text={command} /></div>)}
    <p>It stays {checkpoint.expires_at === null ? "until somebody deletes it" : <>until <Time at={checkpoint.expires_at} /></>}.</p>
    <form onSubmit={(event) => { event.preventDefault(); if (!isBusy && lifetime > 0) void keep(); }}>
      <label>From now on it stays
        <select value={lifetime} onChange={(event) => setLifetime(Number(event.currentTarget.value))}>
          {kLifetimes.map(([name], index) => <option key={name} value={index}>{name}</option>)}
        </select>
      </label>
      {error !== "" && <p role="alert">{error}</p>}
      <div class="row">
        <button disabled={isBusy || lifetime === 0}>Set how long it stays</button>
        <button type="button" disabled={isBusy || checkpoint.missing} onClick={() => void download()}>
          Download{checkpoint.size_bytes === null ? "" : ` ${bytes(checkpoint.size_bytes)}`}</button>
        <button type="button" onClick={() => onClose(false)}>Close</button>
      </div>
    </form>
  </Dialog>;
}
