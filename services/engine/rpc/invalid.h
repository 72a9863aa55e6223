// Errors with a stable code and the name of the invalid field.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "libs/common/errors.h"

namespace lathe::engine {

// Error texts show at most this much of a client's value.
inline constexpr size_t kMaxShownBytes = 128;

inline absl::Status Invalid(const char* code, const std::string& field,
                            const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), code, field);
}

}  // namespace lathe::engine
