// Restores models on a worker that lacks their state: from the newest usable snapshot and a replay
// of the operations after it. Clients see only a delay.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Starts waiting recoveries on a usable group.
void StartRecoveries(State& s, Group& group);
// Call when the worker that was rebuilding models is gone.
void CutRecoveries(State& s, Group& group);

// Handles a recovery command that was not sent: its recovery starts again with the next Tick.
// Returns false if `replay_id` names no recovery command.
bool OnReplayNotSent(State& s, const std::string& replay_id);
// Runs on each Tick. Starts waiting recoveries, including those that are due for a retry.
void RestartRecoveries(State& s);

// Handles the answer to a recovery command. Returns false if it is none.
bool OnReplayDone(State& s, Group& group, const WorkerDone& event);

// A worker lacks an unnamed version that it should have. Unless the version is on disk, a recovery
// of its model makes it again, or the version is lost.
void RegainVersion(State& s, Sampler& sampler);
void OnVersionFailed(State& s, const WorkerVersionFailed& event);

}  // namespace lathe::engine
