// Constructors of the core's errors.
#pragma once

#include <string>

#include "services/engine/core/events.h"

namespace lathe::engine {

ErrorInfo InvalidArgument(std::string code, std::string field, std::string message);
ErrorInfo FailedPrecondition(std::string code, std::string message);
ErrorInfo ResourceExhausted(std::string code, std::string message);
// The state that an operation needs is lost. This is the server's fault.
ErrorInfo DataLoss(std::string code, std::string message);
// The caller abandoned the work.
ErrorInfo Cancelled(std::string message);
ErrorInfo Internal(std::string message);
ErrorInfo Draining();

// The text does not tell an absent object from one of another tenant. `what`: "model", "session"…
ErrorInfo NotFound(const std::string& what, const std::string& id);

}  // namespace lathe::engine
