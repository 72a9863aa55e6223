// Expiry of results, duplicate detection entries and ended sessions.
#pragma once

#include "services/engine/core/state/state.h"

namespace lathe::engine {

// Runs once a minute: purges the store, and begins to forget the same requests in the core.
void PurgeOldResults(State& s);
// Forgets more of them, if some are left.
void ContinuePurge(State& s);

// Removes the oldest unfetched results of tenants that have more of them than their limits allow.
// A Step removes a bounded number; the next Steps continue.
void RemoveUnfetchedResults(State& s);

}  // namespace lathe::engine
