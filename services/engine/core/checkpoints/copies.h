// copy_weights: a checkpoint's files under a new name, in a run that cannot be trained.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnCopyCheckpoint(State& s, const CopyCheckpoint& event);

}  // namespace lathe::engine
