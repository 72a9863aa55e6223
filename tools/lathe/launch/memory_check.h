// Checks that a model fits into memory before it is loaded.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lathe::cli {

// Fails with too_little_memory if weights of `loaded_bytes` do not fit into `available_bytes` of
// host memory. The need is 1.1 times the weights (adapters and caches) plus 512 MiB for the
// processes.
absl::Status CheckMemory(int64_t loaded_bytes, int64_t available_bytes);

}  // namespace lathe::cli
