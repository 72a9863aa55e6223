// What is forgotten with time: results, dedupe entries, ended sessions.
#pragma once

#include "services/engine/core/state.h"

namespace lathe::engine {

// Once a minute: purges the store and forgets the same requests here.
void PurgeOldResults(State& s);

}  // namespace lathe::engine
