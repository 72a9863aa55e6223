// Worker groups: attach, adopt or form, become ready.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnWorkerAttached(State& s, const WorkerAttached& event);
void OnWorkerReady(State& s, const WorkerReady& event);

// On each Tick: a worker that was refused for its files may be of use now.
void UseRefused(State& s);

// The model is where the ledger has it: sends again what was begun of it.
void ResumeModel(State& s, Model& model);

}  // namespace lathe::engine
