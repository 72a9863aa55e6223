// The facts of a model by which it is placed and swept.
#pragma once

#include <cstdint>

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Returns true if the model uses its group or may use it: a load can restore even a lost model.
bool HasHome(const Model& model);
// Returns true if a load_weights into the model is accepted and not ended.
bool IsBeingLoaded(const State& s, const Model& model);
// Returns true if a worker has the model or will have it.
bool IsToBeOnWorker(const State& s, const Model& model);
// Returns true if a worker has the model.
bool IsOnWorker(const Model& model);
// Load of a model on its group. A model in active use counts more.
int64_t LoadOf(const State& s, const Model& model);

// The index of the models as they are now. Valid until a model changes.
ModelIndex& IndexOf(State& s);

}  // namespace lathe::engine
