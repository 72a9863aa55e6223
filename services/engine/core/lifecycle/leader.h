// Start and end of a leader.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Rebuilds the core from what the store holds.
void OnLoaded(State& s, const Loaded& event);

// Shutdown of the engine process. The engine accepts no new work and completes running requests.
void OnDrain(State& s, const Drain& event);
// Answers the waiting Drain calls once nothing runs. Requests that cannot run (no worker, a gap)
// stay accepted; the next leader continues them.
void AnswerDrain(State& s);

}  // namespace lathe::engine
