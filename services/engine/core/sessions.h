// Sessions: begin, signs of life, end.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnCreateSession(State& s, const CreateSession& event);
void OnHeartbeat(State& s, const Heartbeat& event);
// Idempotent: the first reason stays.
void OnFinishSession(State& s, const FinishSession& event);
// The caller has seen that it is the tenant's; it may be forgotten here.
void OnAssignSessionProject(State& s, const AssignSessionProject& event);

// Any use of a session shows that somebody is there.
void NoteSignOfLife(State& s, Session& session);

// Why nothing new may be done in it; nullopt: it is active.
std::optional<ErrorInfo> RefusalOf(const Session& session);

// Parks sessions that have been silent for too long, and ends those that nobody came back to.
void ExpireSessions(State& s);

// Frees what a finished session held once its queued work is complete.
void EndIfComplete(State& s, const std::string& session_id);

}  // namespace lathe::engine
