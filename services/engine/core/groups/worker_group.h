// Worker groups: attach, form or adopt, and readiness.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnWorkerAttached(State& s, const WorkerAttached& event);
void OnWorkerReady(State& s, const WorkerReady& event);

// Runs on each Tick. Tries groups again whose worker was refused for its files.
void UseRefused(State& s);

}  // namespace lathe::engine
