// What is kept of a model's past to rebuild it: the log, its bodies, and the snapshots it starts
// at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/engine/core/state.h"

namespace lathe::engine {

// `request` ends well: what running it again needs is kept. Before it ends.
void KeepForReplay(State& s, Model& model, Request& request);
// The same of a row, at a start.
void RestoreForReplay(State& s, Model& model, const RequestRow& row, const Plan& plan);

// The model was created from the checkpoint in `load.dir`.
void KeepCreation(State& s, Model& model, LoggedLoad load);

// Where the model is.
ModelPoint PointOf(const Model& model);
ModelPoint PointOf(const SnapshotRow& row);

// Seqs of publications after `point` that nothing but a replay brings back, ascending. nullopt: one
// that is needed came before it.
std::optional<std::vector<int64_t>> PublicationsToRepeat(const State& s, const Model& model,
                                                         const ModelPoint& point);

// The two newest snapshots are all there is to start from.
bool IsTrimmed(const State& s, const Model& model);
// Drops what the two newest snapshots make needless.
void TrimHistory(State& s, Model& model);
// No recovery is under way any more.
void ForgetRecovery(State& s, Model& model);
// The model is gone for good.
void ReleaseHistory(State& s, Model& model);

}  // namespace lathe::engine
