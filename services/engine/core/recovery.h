// Restores models on a worker that lacks their state: from the newest usable snapshot and a replay
// of the operations after it. Clients see only a delay.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Call when the model's worker is gone or has another state. From now on the model waits for its
// recovery, and its started requests wait for the model.
void NeedRecovery(State& s, Model& model);
// Returns true if a recovery has started and not ended on the group.
bool IsRecovering(const State& s, const Group& group);
// Has the worker drop a model that is not needed there now. The command has the id of a recovery
// command: a new leader that needs the model sees from it that the drop is still queued.
void DropFromWorker(State& s, const Group& group, const std::string& model_id);
// Starts waiting recoveries on a usable group.
void StartRecoveries(State& s, Group& group);
// Call when the worker that was rebuilding models is gone.
void CutRecoveries(State& s, Group& group);

// Returns true if the worker has not answered all earlier requests of the model. A recovery waits
// for these answers. Otherwise another leader could take an unacknowledged answer for one about the
// restored state.
bool HasWorkAtWorker(State& s, const Model& model);

// The model that a recovery command rebuilds; empty if it is no recovery command.
std::string ModelOfReplay(const std::string& request_id);

// Handles a recovery command that was not sent: its recovery starts again with the next Tick.
// Returns false if `replay_id` names no recovery command.
bool OnReplayNotSent(State& s, const std::string& replay_id);
// Runs on each Tick. Starts waiting recoveries, including those that are due for a retry.
void RestartRecoveries(State& s);

// Handles the answer to a recovery command. Returns false if it is none.
bool OnReplayDone(State& s, Group& group, const WorkerDone& event);

}  // namespace lathe::engine
