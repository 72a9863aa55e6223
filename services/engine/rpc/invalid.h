// Refusals with a stable word and the field that is wrong.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "libs/common/errors.h"

namespace lathe::engine {

// Messages show no more than this of a value that a client chose.
inline constexpr size_t kMaxShownBytes = 128;

inline absl::Status Invalid(const char* code, const std::string& field,
                            const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), code, field);
}

}  // namespace lathe::engine
