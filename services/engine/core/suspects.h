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
// The group's processes are gone. `is_explained`: by what is known; else their parents have yet to
// say how they ended.
void RememberRun(State& s, Group& group, bool is_explained);

// What the end of a process says of a group that was lost.
enum class Explained {
  kNothing,  // it was in none
  kBefore,   // it went with the group, of which all is known
  kNow,      // why the group was lost, perhaps
};
// The parent says how a process ended, which may be one that was remembered.
Explained ExplainRun(State& s, Group& group, const WorkerExited& exited);

}  // namespace lathe::engine
