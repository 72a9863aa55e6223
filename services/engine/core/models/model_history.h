// The part of a model's past that is kept to rebuild it: the log, the bodies in it, and the
// snapshots.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Keeps what a replay of `request` needs. Call it before a request ends successfully.
void KeepForReplay(State& s, Model& model, Request& request);
// Keeps what a replay of a stored request needs, at the start of a leader.
void RestoreForReplay(State& s, Model& model, const RequestRow& row, const Plan& plan);

// Records that the model was created from the checkpoint in `load.dir`.
void KeepCreation(State& s, Model& model, LoggedLoad load);

// The current state of the model, or that of a snapshot.
ModelPoint PointOf(const Model& model);
ModelPoint PointOf(const SnapshotRow& row);

// Seqs of publications after `point` that only a replay can restore, ascending. nullopt if a needed
// one precedes `point`.
std::optional<std::vector<int64_t>> PublicationsToRepeat(const State& s, const Model& model,
                                                         const ModelPoint& point);

// Returns true if the two newest snapshots are the only possible starts of a recovery.
bool IsTrimmed(const State& s, const Model& model);
// Drops the history before the older of the two newest snapshots.
void TrimHistory(State& s, Model& model);
// Ends the tracking of a recovery.
void ForgetRecovery(State& s, Model& model);
// Drops all history of a model that will not be rebuilt.
void ReleaseHistory(State& s, Model& model);

}  // namespace lathe::engine
