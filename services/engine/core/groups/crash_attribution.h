// Crash attribution: quarantine of the requests that ran during a crash of their worker. One of
// them may have caused it, so each runs again alone. A request that completes is cleared. One that
// crashes the worker repeatedly while alone is failed; the others are only delayed. Quarantine is
// not kept across leaders.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnWorkerStarted(State& s, const WorkerStarted& event);

// Quarantines the requests at a worker that crashed, or counts a crash of the one that ran alone.
// `how`: "signal 11".
void AttributeCrash(State& s, Group& group, const std::string& how);
// Records a lost set of processes and its requests. After kUnknown or kPeerGone, the parents of the
// processes may still report how they ended.
void RecordLostRun(State& s, Group& group, LossCause cause);

// Handles a parent's report of an exit. Returns false if the process is in no recorded set.
bool AttributeExit(State& s, Group& group, const WorkerExited& exited);

}  // namespace lathe::engine
