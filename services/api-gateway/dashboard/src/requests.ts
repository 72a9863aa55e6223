// A session's requests, read out of its trace file.
import { call, sessionOf } from "./api";

export interface Stage {
  name: string;
  seconds: number;
}

export interface Asked {
  // Place in the trace.
  number: number;
  operation: string;
  seqId: number;
  tokens: number;
  outcome: string;
  acceptedAt: string;
  seconds: number;
  stages: Stage[];
}

export interface Requests {
  // In the order in which they were accepted.
  asked: Asked[];
  // Says what the trace lacks; empty: nothing.
  missing: string;
}

interface TraceEvent {
  ph: string;
  pid: number;
  name: string;
  id?: number;
  // Microseconds since begins_at.
  ts?: number;
  args?: Record<string, unknown>;
}

interface Trace {
  traceEvents: TraceEvent[];
  otherData: { begins_at: string; missing?: string };
}

// Each request is a begin and an end around those of its stages.
export function requestsOf(trace: Trace, runId: string): Requests {
  const begin = Date.parse(trace.otherData.begins_at);
  const owners = new Map<number, string>();
  const open = new Map<number, Asked>();
  const begun = new Map<string, number>();
  for (const event of trace.traceEvents) {
    if (event.ph === "M") owners.set(event.pid, String(event.args?.["name"]));
    const { id, ts = 0 } = event;
    if (id === undefined) continue;
    const stage = `${id} ${event.name}`;
    const asked = open.get(id);
    if (asked === undefined) {
      if (owners.get(event.pid) !== `model ${runId}`) continue;
      open.set(id, {
        number: id, operation: event.name, seconds: 0, stages: [],
        seqId: Number(event.args?.["seq_id"]), tokens: Number(event.args?.["tokens"]),
        outcome: String(event.args?.["outcome"]), acceptedAt: new Date(begin + ts / 1000).toISOString(),
      });
      begun.set(stage, ts);
    } else if (event.ph === "b") {
      begun.set(stage, ts);
    } else {
      const seconds = (ts - (begun.get(stage) ?? ts)) / 1e6;
      if (event.name === asked.operation) asked.seconds = seconds;
      else asked.stages.push({ name: event.name, seconds });
    }
  }
  return { asked: [...open.values()], missing: trace.otherData.missing ?? "" };
}

export async function listRequests(runId: string): Promise<Requests> {
  const session = encodeURIComponent(sessionOf(runId));
  const link = await call<{ url: string }>("GET", `/api/v1/sessions/${session}/trace_export`);
  // The link may name the server as others reach it; this page reaches it where it came from.
  return requestsOf(await call<Trace>("GET", new URL(link.url).pathname), runId);
}
