// Expiry of results, duplicate detection entries and ended sessions.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Runs once a minute: purges the store and forgets the same requests in the core.
void PurgeOldResults(State& s);

}  // namespace lathe::engine
