// Models that nobody works with leave their worker: their state is on disk, and the next request
// brings it back.
#pragma once

#include <optional>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Of a session that has been silent for the session_timeout: queued work completes; then open
// gradients are dropped, models and unnamed versions are written and leave their workers. Goes on
// with each call until `is_parked`.
void ParkSession(State& s, Session& session);
// There is a sign of life again, or the end: samplers hold on to their files as before, or know
// that they are gone. Models stay parked until they are needed.
void TakeUpSession(State& s, Session& session);

// What a worker has of the model can be made again without running much. Else has it written; after
// a failure not at once again, unless that was before `quiet_since`. A model that waits for its
// recovery is on disk but for its versions.
bool IsOnDisk(State& s, Model& model, int64_t quiet_since);

// Parks models that had no request for the model_idle_timeout.
void ParkIdleModels(State& s);

// A request needs the parked model; or why it cannot come back.
std::optional<ErrorInfo> Unpark(State& s, Model& model);

}  // namespace lathe::engine
