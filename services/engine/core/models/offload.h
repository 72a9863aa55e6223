// Offload of idle models. Their state is on disk only, and the next request resumes it.
#pragma once

#include <optional>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Offloads a session that has been silent for session_timeout. Queued work completes first. Then
// open gradients are dropped, and models and unnamed versions are written and removed from their
// workers, and samplers become idle. Call it again until `is_offloaded`.
void OffloadSession(State& s, Session& session, Budget& budget);
// Resumes a session on a sign of life. Its samplers become busy with their next use or sweep.
// Models stay offloaded until they are needed.
void ResumeSession(State& s, Session& session);
// The time from which on the session is silent, unless it gives another sign of life.
int64_t SilentAt(const State& s, const Session& session);

// Returns true if a model's worker state can be restored without a long replay. Otherwise has it
// written. `quiet_since`: time since which the model is unused. If a write was tried after that
// time and has failed, the next try waits for snapshot_interval. A model that waits for its
// recovery is on disk, except for its versions.
bool IsOnDisk(State& s, Model& model, int64_t quiet_since);

// Offloads models without requests for model_idle_timeout.
void OffloadIdleModels(State& s);

// Resumes an offloaded model for a request. Returns an error if it cannot be resumed.
std::optional<ErrorInfo> ResumeOffloaded(State& s, Model& model);

}  // namespace lathe::engine
