// Calls of the public API, with its types. Nothing here is out of a script's reach: /ui/api/v1 is
// /api/v1 with the session's cookie in place of a key.
import type { components } from "lathe-api";
import { type Me, me, signedOut } from "./session";

export type Schemas = components["schemas"];
export type Run = Schemas["TrainingRun"];
export type Checkpoint = Schemas["Checkpoint"];
export type Session = Schemas["SessionSummary"];
export type Model = Schemas["CapabilitiesResponse"]["supported_models"][number];
export type UsageEvent = Schemas["UsageEvent"];
export type Storage = Schemas["CheckpointStorageResponse"]["data"][number];

export type SignInMethods = Schemas["SignInMethods"];

export class ApiError extends Error {
  constructor(
    // 0: no answer at all.
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string = "",
    readonly requestId: string = "",
    // What the server asked to wait.
    readonly retryAfterMs: number = 0,
  ) {
    super(message);
  }

  // True if the same request may succeed later.
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const { error } = await response.json() as Schemas["Error"];
    return new ApiError(response.status, error.code, error.message, error.hint, error.request_id,
      1000 * Number(response.headers.get("Retry-After") ?? 0));
  } catch {
    return new ApiError(response.status, "unknown", `the server answered ${response.status}`);
  }
}

async function exchange<T>(method: string, path: string, headers: Record<string, string>, body?: unknown): Promise<T> {
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method, headers, body: body === undefined ? null : JSON.stringify(body),
      cache: "no-store", credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(30_000),
    });
  } catch {
    throw new ApiError(0, "unreachable", "the server does not answer");
  }
  if (response.ok) return (response.status === 204 ? undefined : await response.json()) as T;
  throw await errorOf(response);
}

// A request that changes something proves by the token that this page made it.
const proof = (): Record<string, string> => ({ "X-Lathe-CSRF": me.value?.csrf_token ?? "" });

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const asked = me.value;
  try {
    return await exchange<T>(method, `/ui${path}`, method === "GET" ? {} : proof(), body);
  } catch (error) {
    // An answer to an earlier session says nothing about the present one.
    const isOver = error instanceof ApiError && error.status === 401 && asked === me.value;
    if (isOver) signedOut("Your session has ended. Sign in to go on.");
    throw error;
  }
}

export const signInMethods = (): Promise<SignInMethods> => exchange("GET", "/ui/auth/methods", {});
export const signInWithKey = (apiKey: string): Promise<void> => exchange("POST", "/ui/auth/key", {}, { api_key: apiKey });

// Null: nobody is signed in.
export async function askMe(): Promise<Me | null> {
  try {
    return await exchange<Me>("GET", "/ui/api/v1/me", {});
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

// Ends the session here, and at the provider if it offers that.
export async function signOut(): Promise<void> {
  const { redirect } = await exchange<Schemas["SignedOut"]>("POST", "/ui/auth/logout", proof());
  signedOut();
  if (redirect !== null && /^https?:/.test(redirect)) location.assign(redirect);
}

const get = <T>(path: string): Promise<T> => call<T>("GET", path);
const named = (path: string, id: string): string => path + encodeURIComponent(id);

export const listRuns = (limit: number): Promise<Schemas["ListTrainingRunsResponse"]> =>
  get(`/api/v1/training_runs?limit=${limit}`);
export const getRun = (id: string): Promise<Run> => get(named("/api/v1/training_runs/", id));
export const listModels = async (): Promise<Model[]> =>
  (await get<Schemas["CapabilitiesResponse"]>("/api/v1/get_server_capabilities")).supported_models;
export const listCheckpoints = (limit: number): Promise<Schemas["ListCheckpointsResponse"]> =>
  get(`/api/v1/checkpoints?limit=${limit}`);
export const listRunCheckpoints = async (id: string): Promise<Checkpoint[]> =>
  (await get<Schemas["ListCheckpointsResponse"]>(
    `${named("/api/v1/training_runs/", id)}/checkpoints`)).checkpoints;
export const listStorage = async (): Promise<Storage[]> =>
  (await get<Schemas["CheckpointStorageResponse"]>("/api/v1/billing/usage/checkpoints/current")).data;

export async function listUsage(from: Date, to: Date): Promise<UsageEvent[]> {
  const hour = (time: Date): string => encodeURIComponent(time.toISOString().replace(/\.\d+/, ""));
  const path = `/api/v1/billing/usage/events?starting_on=${hour(from)}&ending_before=${hour(to)}`;
  return (await get<Schemas["ListUsageResponse"]>(path)).data;
}

// The session of a run. A run's id is {session_id}:train:{number}.
export const sessionOf = (runId: string): string => runId.split(":train:")[0] ?? runId;

// Sessions by id, newest first, until those of all `runs` are there.
export async function sessionsOf(runs: { training_run_id: string }[]): Promise<Map<string, Session>> {
  const kMaxPages = 5;
  const missing = new Set(runs.map((run) => sessionOf(run.training_run_id)));
  const sessions = new Map<string, Session>();
  let cursor: Schemas["SessionCursor"] | null = null;
  for (let page = 0; page < kMaxPages && missing.size > 0; ++page) {
    const answer: Schemas["SearchSessionsResponse"] = await call("POST", "/api/v1/sessions/search",
      cursor === null ? { limit: 200 } : { limit: 200, cursor });
    for (const session of answer.sessions) {
      missing.delete(session.session_id);
      sessions.set(session.session_id, session);
    }
    cursor = answer.next_cursor;
    if (cursor === null) break;
  }
  return sessions;
}

const knownSessions = new Map<string, Session>();
const kMaxKnownSessions = 5000;
const askedSessions = new Set<string>();

// As sessionsOf, of what does not change: names and metadata. A session is looked for once. Names are
// not worth an error.
export async function namesOf(runs: { training_run_id: string }[]): Promise<Map<string, Session>> {
  const missing = runs.filter(({ training_run_id: id }) => !askedSessions.has(sessionOf(id)));
  if (missing.length === 0) return knownSessions;
  try {
    const found = await sessionsOf(missing);
    if (askedSessions.size + missing.length > kMaxKnownSessions) {
      askedSessions.clear();
      knownSessions.clear();
    }
    for (const { training_run_id: id } of missing) {
      const session = found.get(sessionOf(id));
      askedSessions.add(sessionOf(id));
      if (session !== undefined) knownSessions.set(session.session_id, session);
    }
  } catch (error) {
    if (!(error instanceof ApiError) || !error.isPassing) throw error;
  }
  return knownSessions;
}

const checkpointPath = (checkpoint: Checkpoint): string => {
  const [kind = "", name = ""] = checkpoint.checkpoint_id.split("/");
  return `${named("/api/v1/training_runs/", runOf(checkpoint))}/checkpoints/` +
    `${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
};
// tinker://RUN/KIND/NAME
export const runOf = (checkpoint: Checkpoint): string =>
  checkpoint.tinker_path.replace("tinker://", "").split("/")[0] ?? "";
export const deleteCheckpoint = (checkpoint: Checkpoint): Promise<void> =>
  call("DELETE", checkpointPath(checkpoint));
export const publishCheckpoint = (checkpoint: Checkpoint, isPublic: boolean): Promise<void> =>
  call(isPublic ? "POST" : "DELETE", `${checkpointPath(checkpoint)}/publish`);
