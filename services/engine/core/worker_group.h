// Worker groups: attach, form or adopt, and readiness.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnWorkerAttached(State& s, const WorkerAttached& event);
void OnWorkerReady(State& s, const WorkerReady& event);

// Runs on each Tick. Tries groups again whose worker was refused for its files.
void UseRefused(State& s);

// The model's state is on the worker as the ledger has it. Sends its started requests again.
void ResumeModel(State& s, Model& model);

}  // namespace lathe::engine
