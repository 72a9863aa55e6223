// Worker groups: attach, adopt or form, detach, loss.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnWorkerAttached(State& s, const WorkerAttached& event);
void OnWorkerReady(State& s, const WorkerReady& event);
void OnWorkerDetached(State& s, const WorkerDetached& event);

// Gives up workers that have been away for worker_lost_timeout.
void GiveUpLostWorkers(State& s);

// The model is where the ledger has it: sends again what was begun of it.
void ResumeModel(State& s, Model& model);

}  // namespace lathe::engine
