// Shutdown of the engine process. The engine accepts no new work and completes running requests.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnDrain(State& s, const Drain& event);

// Answers the waiting Drain calls once nothing runs. Requests that cannot run (no worker, a gap)
// stay accepted; the next leader continues them.
void AnswerDrain(State& s);

}  // namespace lathe::engine
