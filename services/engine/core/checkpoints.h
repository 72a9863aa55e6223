// Named checkpoints: rows, lifetime and the files behind them.
#pragma once

#include <optional>
#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnDeleteCheckpoint(State& s, const DeleteCheckpoint& event);
void OnPublishCheckpoint(State& s, const PublishCheckpoint& event);
void OnSetCheckpointTtl(State& s, const SetCheckpointTtl& event);

// tinker://{model_id}/{weights|sampler_weights|external_weights}/{name}
std::string CheckpointPath(const std::string& model_id, CheckpointKind kind,
                           const std::string& name);
CheckpointKind KindOf(const Request& save);

// Own or public, complete and not expired; nullptr otherwise. Holds until the Step ends.
// `reader_tenant_id`: of a weights access token, whose own count too; may be empty.
const CheckpointRow* FindUsable(const State& s, const std::string& tenant_id,
                                const std::string& tinker_path,
                                const std::string& reader_tenant_id = "");

// Why `checkpoint` cannot be loaded as asked; `base_model` empty: any.
std::optional<ErrorInfo> CheckLoadable(const CheckpointRow& checkpoint, const LoadArgs& args,
                                       const std::string& base_model);

// Pins what the path of a load into `model` names now in the load's plan; or why it cannot be
// loaded.
std::optional<ErrorInfo> ResolveLoad(State& s, const Model& model, Request& load);

// Where a process of `group`, formed in `epoch`, writes a save whose plan says `plan_dir`. Another
// one that has to repeat the save writes elsewhere: whatever the first still does, it changes
// nothing that is committed.
std::string SaveDir(const std::string& plan_dir, const std::string& group, int64_t epoch);

// The row that a named save will commit, by the worker that its group has now.
CheckpointRow CheckpointOf(const State& s, const Model& model, const Request& save);
// A save is complete: its row replaces the one of the same name, whose files go. What was
// published stays so.
void CommitCheckpoint(State& s, CheckpointRow row);

// Files stay while a sampler or a load needs them, whatever happens to their row.
void PinDir(State& s, const std::string& dir);
void UnpinDir(State& s, const std::string& dir);

void SweepExpiredCheckpoints(State& s);

}  // namespace lathe::engine
