// Errors with a stable code and the name of the invalid field, and limits of the base model.
#pragma once

#include <cstddef>
#include <cstdint>
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

struct ModelLimits {
  int64_t max_context_length = 0;
  int64_t vocab_size = 0;
};

}  // namespace lathe::engine
