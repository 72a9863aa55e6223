// Brings models back onto a worker that has not got their state: from the newest snapshot that
// serves, and by running again what came after it. Their clients see delay only.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Its worker is gone, or has another state: from now on the model waits for its recovery.
void NeedRecovery(State& s, Model& model);
// Begins what waits, on a group that is usable.
void StartRecoveries(State& s, Group& group);
// The worker that was rebuilding models is gone.
void CutRecoveries(State& s, Group& group);

// An answer to a command of a recovery; false: it is none.
bool OnReplayDone(State& s, Group& group, const WorkerDone& event);

}  // namespace lathe::engine
