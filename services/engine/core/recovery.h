// Brings models back onto a worker that has not got their state: from the newest snapshot that
// serves, and by running again what came after it. Their clients see delay only.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Its worker is gone, or has another state: from now on the model waits for its recovery, and what
// was begun of it for the model.
void NeedRecovery(State& s, Model& model);
// Whether one has begun and not ended.
bool IsRecovering(const State& s, const Group& group);
// The worker is to forget a model that nobody needs there now. A leader who comes meanwhile, and
// may need it, finds the command at the worker.
void DropFromWorker(State& s, const Group& group, const std::string& model_id);
// Begins what waits, on a group that is usable.
void StartRecoveries(State& s, Group& group);
// The worker that was rebuilding models is gone.
void CutRecoveries(State& s, Group& group);

// Its worker answers what it was sent before it is told anything of the recovery: an answer that
// was not acknowledged would be taken, by another leader, for one of the state that is restored.
bool HasWorkAtWorker(State& s, const Model& model);

// Which model a command of a recovery rebuilds; empty: it is none.
std::string ModelOfReplay(const std::string& request_id);

// A command of a recovery was not sent: it begins again with the next Tick. False: it is none.
bool OnReplayNotSent(State& s, const std::string& replay_id);
// On each Tick.
void RestartRecoveries(State& s);

// An answer to a command of a recovery; false: it is none.
bool OnReplayDone(State& s, Group& group, const WorkerDone& event);

}  // namespace lathe::engine
