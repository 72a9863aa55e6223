// Whether a model can fit before an hour is spent loading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lathe::cli {

// Bytes this process and its children may still use: the smallest of MemAvailable and the memory
// limits of its cgroup (version 2, and every parent; version 1). `root` replaces "/" in tests.
absl::StatusOr<int64_t> AvailableMemoryBytes(const std::filesystem::path& root = "/");

// too_little_memory when weights of `loaded_bytes` do not fit into `available_bytes` of a CPU: 1.1
// times the weights for adapters and caches, and 512 MiB for the processes themselves.
absl::Status CheckMemory(int64_t loaded_bytes, int64_t available_bytes);

}  // namespace lathe::cli
