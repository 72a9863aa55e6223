// What people call a run, and how it is.
import { type Run, sessionOf, type Session } from "./api";
import type { Mood } from "./parts/basic";

type Sessions = Map<string, Session>;

export const sessionIn = (sessions: Sessions, run: Run): Session | undefined =>
  sessions.get(sessionOf(run.training_run_id));

export function displayNameOf(runId: string, sessions: Sessions): string {
  const name = sessions.get(sessionOf(runId))?.display_name;
  return name === null || name === undefined || name.trim() === "" ? runId : name;
}

export const nameOf = (run: Run, sessions: Sessions): string => displayNameOf(run.training_run_id, sessions);

export function stateOf(run: Run, sessions: Sessions): { word: string; mood: Mood } {
  if (run.corrupted) return { word: "broken", mood: "bad" };
  const session = sessionIn(sessions, run);
  if (session === undefined) return { word: "unknown", mood: "" };
  if (session.status === null) return { word: "ended", mood: "" };
  if (session.status.type === "active") return { word: "active", mood: "ok" };
  const reason = session.status.reason?.type;
  if (reason === "errored") return { word: "failed", mood: "bad" };
  return reason === "interrupted" ? { word: "interrupted", mood: "warn" } : { word: "finished", mood: "" };
}
