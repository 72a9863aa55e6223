// Why a request failed or was refused.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lathe::engine {

struct ErrorInfo {
  absl::StatusCode status = absl::StatusCode::kOk;
  std::string code;  // stable identifier
  std::string field;
  std::string message;
  int64_t retry_after_seconds = 0;  // earliest useful retry; 0: unknown
};

}  // namespace lathe::engine
