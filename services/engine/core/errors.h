// The core's errors: one function per stable code that several places use.
#pragma once

#include <string>

#include "services/engine/core/events.h"

namespace lathe::engine {

ErrorInfo InvalidArgument(std::string code, std::string field, std::string message);
ErrorInfo FailedPrecondition(std::string code, std::string message);
ErrorInfo ResourceExhausted(std::string code, std::string message);
// Server's fault: the state that an operation needs is gone.
ErrorInfo DataLoss(std::string code, std::string message);
// The caller gave the work up.
ErrorInfo Cancelled(std::string message);
ErrorInfo Internal(std::string message);
ErrorInfo Draining();

// Same text for what is absent and what belongs to another tenant. `what`: "model", "session"…
ErrorInfo NotFound(const std::string& what, const std::string& id);

}  // namespace lathe::engine
