// Names of operations and outcomes in traces and metrics.
#pragma once

#include <string_view>

#include "services/engine/runtime/session_traces.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns "forward_backward" and the like.
std::string_view WordOf(OperationKind kind);
// Returns ok, user_error, server_error or cancelled.
std::string_view WordOf(Outcome outcome);

}  // namespace lathe::engine
