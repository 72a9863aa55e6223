// The session of one run, which its answer names.
import { call, type Run, type Schemas, type Session } from "./api";

// Empty once the session is forgotten.
export async function sessionOfRun({ session_id }: Run): Promise<Map<string, Session>> {
  const { sessions } = await call<Schemas["SearchSessionsResponse"]>("POST", "/api/v1/sessions/search",
    { session_id, limit: 1 });
  return new Map(sessions.map((session) => [session.session_id, session]));
}
