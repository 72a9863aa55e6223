// A run's newest requests.
import { call, type Schemas } from "./api";

export type Asked = Schemas["RunRequest"];

export interface Requests {
  // In the order in which they were accepted.
  asked: Asked[];
  // Requests up to this time may be missing; null: none is.
  completeSince: string | null;
}

const kLimit = 500;

export async function listRequests(runId: string): Promise<Requests> {
  const answer = await call<Schemas["ListRunRequestsResponse"]>("GET",
    `/api/v1/training_runs/${encodeURIComponent(runId)}/requests?limit=${kLimit}`);
  return { asked: answer.requests.reverse(), completeSince: answer.complete_since };
}
