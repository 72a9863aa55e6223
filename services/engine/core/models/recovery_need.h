// Models that wait for a recovery, because no worker has their state.
#pragma once

#include <string>
#include <vector>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Call when the model's worker is gone or has another state. From now on the model waits for its
// recovery, and its started requests wait for the model.
void NeedRecovery(State& s, Model& model);
// Forgets the recovery commands under way: their answers no longer count.
void ForgetRunning(State& s, Recovery& recovery);
// Returns true if a recovery has started and not ended on the group.
bool IsRecovering(State& s, const Group& group);
// Returns true if recoveries of the model, or a request of it that ran alone, have ended workers. A
// migration would endanger another group's worker.
bool MayKillWorkers(State& s, const Model& model);

// Started requests of the model.
std::vector<Request*> BegunRequests(State& s, const Model& model);
// Returns true if the worker has not answered all earlier requests of the model. A recovery waits
// for these answers. Otherwise another leader could take an unacknowledged answer for one about the
// restored state.
bool HasWorkAtWorker(State& s, const Model& model);

// Makes the id of a recovery command. The ids are unique, as the worker may still have commands of
// an earlier attempt. An id contains the model, so that a new leader which finds it at a worker can
// tell what the command changes. If the command makes a version, the id ends with the version id's
// suffix.
std::string ReplayId(State& s, const std::string& model_id, const std::string& request_id);
// The model that a recovery command rebuilds; empty if it is no recovery command.
std::string ModelOfReplay(const std::string& request_id);

// Has the worker drop a model that is not needed there now. The command has the id of a recovery
// command: a new leader that needs the model sees from it that the drop is still queued.
void DropFromWorker(State& s, const Group& group, const std::string& model_id);

}  // namespace lathe::engine
