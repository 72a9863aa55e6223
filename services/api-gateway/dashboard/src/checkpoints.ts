// Links to a checkpoint's files, and the time until it is deleted.
import { call, type Checkpoint, runOf, type Schemas } from "./api";

const addressOf = (checkpoint: Checkpoint): string => {
  const [kind = "", name = ""] = checkpoint.checkpoint_id.split("/");
  return `/api/v1/training_runs/${encodeURIComponent(runOf(checkpoint))}/checkpoints/` +
    `${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
};

// Address of one tar file of all files. It needs no key and expires.
export const archiveUrl = async (checkpoint: Checkpoint): Promise<string> =>
  (await call<Schemas["ArchiveLinkResponse"]>("GET", `${addressOf(checkpoint)}/archive?redirect=false`)).url;

// Null: it is kept until somebody deletes it.
export const setTtl = (checkpoint: Checkpoint, seconds: number | null): Promise<void> =>
  call("PUT", `${addressOf(checkpoint)}/ttl`, { ttl_seconds: seconds });

// What loads it in a program, copies its files, or merges it with its base model.
export function commandsFor({ tinker_path, checkpoint_type }: Checkpoint): [string, string][] {
  const load: [string, string][] = checkpoint_type === "training"
    ? [["Train on from it", `service.create_training_client_from_state("${tinker_path}")`]]
    : checkpoint_type === "sampler" ? [["Sample from it", `service.create_sampling_client(model_path="${tinker_path}")`]] : [];
  return [...load, ["Merge it into a folder for Transformers", `lathe export --merged ${tinker_path} --model FOLDER --out DIR`]];
}
