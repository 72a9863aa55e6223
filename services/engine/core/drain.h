// The end of a process: no new work, what runs completes.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnDrain(State& s, const Drain& event);

// Answers waiting drains once nothing runs. What cannot run (no worker, a gap) stays accepted and
// is taken up by the next start.
void AnswerDrain(State& s);

}  // namespace lathe::engine
