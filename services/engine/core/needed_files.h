// Directories of checkpoints, snapshots and versions that are still needed.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Deletes all other directories, which a crash or an evicted worker has left.
void DropUnneededFiles(State& s);

}  // namespace lathe::engine
