// The service's state: queues, the tenant's live models, groups of workers.
import { call, type Schemas } from "./api";
import type { Mood } from "./parts/basic";

export type Status = Schemas["ServiceStatus"];
export type Group = Schemas["GroupState"];
export type Rank = NonNullable<Group["ranks"]>[number];
export type QueuedModel = Schemas["QueuedModel"];

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
