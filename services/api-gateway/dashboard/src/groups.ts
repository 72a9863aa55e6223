// Groups of workers, for keys with the scope operator.
import { call, type Schemas } from "./api";
import type { Group } from "./status";

export type GroupModels = Schemas["GroupModels"];
export type GroupModel = GroupModels["models"][number];

const addressOf = (group: string): string => `/api/v1/groups/${encodeURIComponent(group)}`;

export const listGroupModels = (group: string, limit: number): Promise<GroupModels> =>
  call("GET", `${addressOf(group)}/models?limit=${limit}`);
export const drainGroup = (group: string): Promise<void> => call("POST", `${addressOf(group)}/drain`);
export const resumeGroup = (group: string): Promise<void> => call("POST", `${addressOf(group)}/resume`);
export const removeGroup = (group: string): Promise<void> => call("DELETE", addressOf(group));
export const moveModel = (runId: string, group: string): Promise<void> =>
  call("PUT", `${addressOf(group)}/models/${encodeURIComponent(runId)}`);

type Work = "train" | "sample";

const doesWork = ({ role }: Group, work: Work): boolean => role === null || role === "both" || role === work;

const others = (groups: Group[], group: Group): Group[] =>
  groups.filter((other) => other.group !== group.group && other.base_model === group.base_model);

// Groups that could take over that work of `group` now.
export const takers = (groups: Group[], group: Group, work: Work): string[] =>
  others(groups, group).filter((other) => other.state === "ready" && other.drain === null && doesWork(other, work))
    .map((other) => other.group);

// The work of `group` that no other group could take over now.
export const leftUndone = (groups: Group[], group: Group): Work[] =>
  (["train", "sample"] as const).filter((work) => doesWork(group, work) && takers(groups, group, work).length === 0);

// True if another group has the base model, in whatever state.
export const isServedElsewhere = (groups: Group[], group: Group): boolean => others(groups, group).length > 0;

// "a", "a or b", "a, b or c".
export const eitherOf = (names: string[]): string =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
