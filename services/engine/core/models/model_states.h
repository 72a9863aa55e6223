// Notifies callers why no request of a model starts.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Sends the states that have changed since the last call.
void NotifyModelStates(State& s);

}  // namespace lathe::engine
