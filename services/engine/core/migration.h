// Migration of models between groups. A model migrates because its group is lost, because its group
// is drained, or because an operator asks for it.
//
// A model migrates while no worker has its state, so a migration is a recovery on another group.
// One transaction changes the group in the model's row. A leader that starts after a crash
// therefore finds the model on exactly one group. A live model is first brought into that state:
// none of its requests start, running ones complete, and state that only its worker has is written,
// as for an offload.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnMoveModel(State& s, const MoveModel& event);
void OnDrainGroup(State& s, const DrainGroup& event);

// Runs on each Tick. Prepares and executes the migrations that are due. A model whose recoveries
// end workers does not migrate unless an operator asks for it.
void MigrateModels(State& s);
// Runs on each Tick. Publishes what drained groups still hold.
void NotifyGroupDrains(State& s);

// Returns why the model is in migration, or must not leave a group that does not work; for people.
// Empty: neither.
std::string MigrationWaitReason(State& s, const Model& model);

}  // namespace lathe::engine
