// Named checkpoints: rows, lifetime and the files behind them.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnDeleteCheckpoint(State& s, const DeleteCheckpoint& event);
void OnPublishCheckpoint(State& s, const PublishCheckpoint& event);
void OnSetCheckpointTtl(State& s, const SetCheckpointTtl& event);

// tinker://{model_id}/{weights|sampler_weights|external_weights}/{name}
std::string CheckpointPath(const std::string& model_id, CheckpointKind kind,
                           const std::string& name);
CheckpointKind KindOf(const Request& save);

// Finds a checkpoint that is complete, not expired, and either public or owned by the tenant.
// Returns nullptr otherwise. The pointer is valid until the Step ends. `reader_tenant_id`: tenant
// of a weights access token, whose checkpoints count too; may be empty.
const CheckpointRow* FindUsable(const State& s, const std::string& tenant_id,
                                const std::string& tinker_path,
                                const std::string& reader_tenant_id = "");

// Returns why `checkpoint` cannot be loaded as asked. An empty `base_model` accepts any.
std::optional<ErrorInfo> CheckLoadable(const CheckpointRow& checkpoint, const LoadArgs& args,
                                       const std::string& base_model);

// Finds the checkpoint that the path of a load into `model` names now, and pins it in the load's
// plan. Returns an error if it cannot be loaded.
std::optional<ErrorInfo> ResolveLoad(State& s, const Model& model, Request& load);

// The row that a named save will commit. It names the directory of the group's current epoch.
CheckpointRow CheckpointOf(const State& s, const Model& model, const Request& save);
// Adds a complete checkpoint to the indexes, at its commit or at a restart.
void TrackCheckpoint(State& s, CheckpointRow row);
// Commits the row of a complete save. It replaces the row of the same name, whose files are
// deleted. A published checkpoint stays published.
void CommitCheckpoint(State& s, CheckpointRow row);

void SweepExpiredCheckpoints(State& s);

}  // namespace lathe::engine
