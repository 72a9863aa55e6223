// Checkpoints of files that no save of theirs wrote: those of copy_weights, which are another
// checkpoint's files in a run that cannot be trained, and those that come back from the trash.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

void OnCopyCheckpoint(State& s, const CopyCheckpoint& event);
// Refuses a path that is in use. The caller then moves the files back.
void OnAdoptCheckpoint(State& s, const AdoptCheckpoint& event);

}  // namespace lathe::engine
