// Whether a model can fit before an hour is spent loading it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lathe::cli {

// too_little_memory when weights of `loaded_bytes` do not fit into `available_bytes` of a CPU: 1.1
// times the weights for adapters and caches, and 512 MiB for the processes themselves.
absl::Status CheckMemory(int64_t loaded_bytes, int64_t available_bytes);

}  // namespace lathe::cli
