// Requests that ran when their worker died by itself. One of them may have ended it, so each runs
// again with nothing beside it. Who completes is cleared; who takes the worker along twice is
// failed. The others lose time and nothing else. A new leader does not know of them.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnWorkerStarted(State& s, const WorkerStarted& event);

// The worker died by itself, with all it was sent. `how`: "signal 11".
void BlameForCrash(State& s, Group& group, const std::string& how);
// The group's processes are gone, by `cause`. kUnknown, kPeerGone: if they have parents, those have
// yet to say how they ended.
void RememberRun(State& s, Group& group, LossCause cause);

// Its recoveries, or a request of it that ran alone, have ended workers: another group's would be
// next.
bool MayKillWorkers(State& s, const Model& model);

// The parent says how a process ended. False: it is none of those that were remembered.
bool ExplainRun(State& s, Group& group, const WorkerExited& exited);

}  // namespace lathe::engine
