// Calls of administrators: keys, tenants and their quotas, users, usage, the log of changes.
import { call, type Schemas } from "./api";

export type KeyInfo = Schemas["KeyInfo"];
export type NewKey = Schemas["NewKey"];
export type TenantInfo = Schemas["TenantInfo"];
export type Quota = Schemas["Quota"];
export type AuditEntry = Schemas["AuditEntry"];
export type User = Schemas["User"];
export type UserSession = Schemas["UserSessions"]["sessions"][number];

export const kRowsOfPage = 100;
export const kScopes = ["train", "sample", "read", "checkpoints:write", "admin", "operator"];

// Absent and empty members are left out.
function address(path: string, members: Record<string, string | number | boolean>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (value !== "" && value !== false) query.set(name, String(value));
  }
  return `${path}?${query}`;
}

export interface KeyQuery {
  tenant: string;
  withEnded: boolean;
  offset: number;
}

export const listKeys = ({ tenant, withEnded, offset }: KeyQuery): Promise<Schemas["ListKeysResponse"]> =>
  call("GET", address("/api/v1/keys", { tenant, with_ended: withEnded, limit: kRowsOfPage, offset }));
export const createKey = (key: Partial<Schemas["CreateKeyRequest"]>): Promise<NewKey> =>
  call("POST", "/api/v1/keys", key);
export const revokeKey = (id: string): Promise<void> =>
  call("DELETE", `/api/v1/keys/${encodeURIComponent(id)}`);
export const rotateKey = (id: string, overlapSeconds: number): Promise<NewKey> =>
  call("POST", `/api/v1/keys/${encodeURIComponent(id)}/rotate`, { overlap_seconds: overlapSeconds });

export const listTenants = (offset: number, limit = kRowsOfPage): Promise<Schemas["ListTenantsResponse"]> =>
  call("GET", address("/api/v1/tenants", { limit, offset }));
export const setQuota = (tenant: string, quota: Partial<Quota>): Promise<Quota> =>
  call("PUT", `/api/v1/tenants/${encodeURIComponent(tenant)}/quota`, quota);

export interface AuditQuery {
  day: string;
  event_type: string;
  tenant: string;
  actor: string;
  object: string;
  offset: number;
}

export const searchAudit = (query: AuditQuery): Promise<Schemas["ListAuditResponse"]> =>
  call("GET", address("/api/v1/audit", { ...query, limit: kRowsOfPage }));

export async function listUsageOf(tenant: string, from: Date, to: Date): Promise<Schemas["UsageEvent"][]> {
  const hour = (time: Date): string => time.toISOString().replace(/\.\d+/, "");
  const answer: Schemas["ListUsageResponse"] = await call("GET", address("/api/v1/billing/usage/events",
    { starting_on: hour(from), ending_before: hour(to), tenant }));
  return answer.data;
}

const userPath = (id: string): string => `/api/v1/users/${encodeURIComponent(id)}`;
export const listUsers = (offset: number): Promise<Schemas["Users"]> =>
  call("GET", address("/api/v1/users", { limit: kRowsOfPage, offset }));
export const updateUser = (id: string, change: { role?: string; disabled?: boolean }): Promise<unknown> =>
  call("PATCH", userPath(id), change);
export const listUserSessions = async (id: string): Promise<UserSession[]> =>
  (await call<Schemas["UserSessions"]>("GET", `${userPath(id)}/sessions`)).sessions;
export const endUserSession = (id: string, session: string): Promise<void> =>
  call("DELETE", `${userPath(id)}/sessions/${encodeURIComponent(session)}`);
