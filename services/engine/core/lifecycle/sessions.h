// Start, signs of life and end of sessions, and sampling sessions.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnCreateSession(State& s, const CreateSession& event);
void OnHeartbeat(State& s, const Heartbeat& event);
// Idempotent: the first reason stays.
void OnFinishSession(State& s, const FinishSession& event);
// The caller has checked that the tenant owns the session. The core may have forgotten it.
void OnAssignSessionProject(State& s, const AssignSessionProject& event);

// Any use of a session counts as a sign of life.
void RecordSignOfLife(State& s, Session& session);

// Adds a session to the indexes, at its creation or at a restart.
void TrackSession(State& s, Session session);

// Offloads sessions that have been silent for too long, ends those that stayed silent, and forgets
// those that ended long ago. A session of many samples, samplers and models takes several Ticks. A
// session that has ended takes nothing new meanwhile. A Tick sweeps twice: the second time behind
// the events that wait, and only if the first returned true, as it had more to do than half of
// max_swept.
bool SweepSessions(State& s);

// Frees the state of a finished session once its queued work is complete. What the Step may not
// release any more is released with the next Ticks.
void EndIfComplete(State& s, const std::string& session_id);

// Idempotent on (session, sampling_session_seq_id).
void OnCreateSamplingSession(State& s, const CreateSamplingSession& event);

// Answers with a number that no other call for this sampler gets, across restarts.
void OnJoinSamplingSession(State& s, const JoinSamplingSession& event);

}  // namespace lathe::engine
