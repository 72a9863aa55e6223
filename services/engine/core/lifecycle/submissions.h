// Entry point of all requests that become futures.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnSubmit(State& s, const Submit& submit);

}  // namespace lathe::engine
