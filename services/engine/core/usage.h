// What tenants used, by the hour. It joins the commit that makes a result durable, so that after a
// crash it is counted as often as the result: once.
#pragma once

#include <string>

#include "services/engine/core/state.h"

namespace lathe::engine {

// A request that succeeded, before its plan is dropped. One row per hour, session and base model
// grows; refusals, failures and cancelled samples are nobody's use.
void CountUsage(State& s, const Request& request, const WorkerDone& done);

void CountCheckpoint(State& s, const std::string& tenant_id, const std::string& session_id,
                     const std::string& base_model);

// Once an hour, by tenant and base model. A level: counted again after a restart it adds nothing.
void CountStorage(State& s);

}  // namespace lathe::engine
