// The service's state: queues, the tenant's live models, groups of workers.
import { call, type Schemas } from "./api";
import type { Mood } from "./parts/basic";

export type Status = Schemas["ServiceStatus"];
export type Group = Schemas["GroupState"];
export type Rank = NonNullable<Group["ranks"]>[number];
export type QueuedModel = Schemas["QueuedModel"];

const kMaxQueued = 200;

export const getStatus = (limit: number): Promise<Status> => call<Status>("GET", `/api/v1/status?limit=${limit}`);

interface Counted {
  waiting: number;
  running: number;
}

export const sumOf = (queues: Counted[]): Counted => queues.reduce((sum, { waiting, running }) =>
  ({ waiting: sum.waiting + waiting, running: sum.running + running }), { waiting: 0, running: 0 });

const kMoods: Record<Group["state"], Mood> = { loading: "warn", ready: "ok", lost: "bad", degraded: "bad", refused: "bad" };

export const moodOf = (group: Group): Mood => group.drain === null ? kMoods[group.state] ?? "warn" : "warn";

// "ready", "ready, draining".
export const wordOf = (group: Group): string => group.drain === null ? group.state : `${group.state}, ${group.drain}`;

// Why a group is not ready, or how far it is.
export const reasonOf = (group: Group): string => group.reason ?? group.progress ?? "";

// What a run waits for; empty: it has no unfinished request.
export function waitOf(model: QueuedModel): string {
  if (model.reason !== null) return model.reason;
  if (model.move_to !== null) return `moves to ${model.move_to}`;
  if (model.state === "creating") return "is being created";
  return model.pending === 0 ? "" : "no special reason: its requests take turns";
}

// State of a live run among those with the most unfinished requests; undefined: it is not among them.
export const findQueued = async (runId: string): Promise<QueuedModel | undefined> =>
  (await getStatus(kMaxQueued)).models.find(({ training_run_id }) => training_run_id === runId);
