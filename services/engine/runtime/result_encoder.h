// Results the core decides by itself, as they are stored and served.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/engine/core/actions.h"

namespace lathe::engine {

// The status of an error with its word and field.
absl::Status ToStatus(const ErrorInfo& error);
ErrorInfo ToErrorInfo(const absl::Status& status);

// A serialized lathe.v1.OperationResult.
std::string EncodeResult(const MakeResult& result);

}  // namespace lathe::engine
