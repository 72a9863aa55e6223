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
// The worker is gone; how, its parent has yet to say.
void RememberRun(State& s, Group& group);
// The parent says how the process `pid` ended, which may be one that was remembered.
void ExplainRun(State& s, Group& group, int64_t pid, bool died_by_itself, const std::string& how);

}  // namespace lathe::engine
