// Rebuilds the core from what the store holds.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

void OnLoaded(State& s, const Loaded& event);

}  // namespace lathe::engine
