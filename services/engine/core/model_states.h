// What callers are told of why nothing of a model begins.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Tells what has changed since the last time.
void TellModelStates(State& s);

}  // namespace lathe::engine
