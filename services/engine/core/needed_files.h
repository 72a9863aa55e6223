// Directories of checkpoints, snapshots and versions that something still needs.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Has all others removed: what a crash, or a worker that was given up for lost, has left.
void DropUnneededFiles(State& s);

}  // namespace lathe::engine
