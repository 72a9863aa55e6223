// Expiry of results, duplicate detection entries and ended sessions, and files that must stay.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Runs once a minute: purges the store and forgets the same requests in the core.
void PurgeOldResults(State& s);

// Deletes the directories of checkpoints, snapshots and versions that are not needed, which a crash
// or an evicted worker has left.
void DropUnneededFiles(State& s);

}  // namespace lathe::engine
