// The words of operations and outcomes, as traces and metrics have them.
#pragma once

#include <string_view>

#include "services/engine/runtime/session_traces.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// "forward_backward" and the like.
std::string_view WordOf(OperationKind kind);
// ok, user_error, server_error or cancelled.
std::string_view WordOf(Outcome outcome);

}  // namespace lathe::engine
