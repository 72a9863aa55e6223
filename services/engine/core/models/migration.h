// Migration of models between groups. A model migrates because its group is lost, because its group
// is drained, or because an operator asks for it.
//
// A model migrates while no worker has its state, so a migration is a recovery on another group.
// One transaction changes the group in the model's row. A leader that starts after a crash
// therefore finds the model on exactly one group. A live model is first prepared as for an offload:
// none of its requests start, running requests complete, and the worker writes the state that only
// it has.
#pragma once

#include <string>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Runs on each Tick. Prepares and executes the migrations that are due. A model whose recoveries
// end workers does not migrate unless an operator asks for it.
void MigrateModels(State& s);

}  // namespace lathe::engine
