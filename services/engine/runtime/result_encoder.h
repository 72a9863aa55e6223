// Encodes results that the core decides by itself, in the form that the store keeps.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// Returns the error as a status with its code, field and retry delay.
absl::Status ToStatus(const ErrorInfo& error);
ErrorInfo ToErrorInfo(const absl::Status& status);

// Returns a serialized lathe.v1.OperationResult.
std::string EncodeResult(const MakeResult& result);

}  // namespace lathe::engine
