// Usage of tenants by hour. It joins the commit that makes a result durable. A crash therefore
// neither loses usage nor counts it twice.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// Counts a successful request. Call it before its plan is dropped. There is one row per hour,
// session and base model. Refusals, failures and cancelled samples do not count.
void CountUsage(State& s, const Request& request, const WorkerDone& done);

void CountCheckpoint(State& s, const std::string& tenant_id, const std::string& session_id,
                     const std::string& base_model);

// Runs once an hour, by tenant and base model. The row holds a level: counting again after a
// restart does not add to it.
void CountStorage(State& s);

}  // namespace lathe::engine
