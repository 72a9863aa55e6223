// Refusals with a stable word and the field that is wrong.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "libs/common/errors.h"

namespace lathe::engine {

inline absl::Status Invalid(const char* code, const std::string& field,
                            const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), code, field);
}

}  // namespace lathe::engine
