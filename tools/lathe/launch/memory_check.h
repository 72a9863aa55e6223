// Checks that a model fits into memory before it is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lathe::cli {

// The need of one base model's groups, and the part of the memory that they may use.
struct MemoryNeed {
  std::string model;
  int64_t loaded_bytes = 0;     // size of its weights, in all groups
  int64_t available_bytes = 0;  // host memory that is free for all base models
  double share = 1;             // the model's part of it
};

// Fails with too_little_memory if the weights do not fit into their share. The need is 1.1 times
// the weights (adapters and caches) plus 512 MiB for the processes.
absl::Status CheckMemory(const MemoryNeed& need);

}  // namespace lathe::cli
