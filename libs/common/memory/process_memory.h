// Measures the memory that this process uses and may use.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

namespace lathe {

// Returns the bytes that this process and its children may still use. It is the smallest of
// MemAvailable and the limits of its cgroup (version 2 with all parents, or version 1). `root`
// replaces "/" in tests.
absl::StatusOr<int64_t> AvailableMemoryBytes(const std::filesystem::path& root = "/");

// Returns the resident bytes, including mapped files; 0 if the system does not report them.
int64_t ResidentMemoryBytes();

}  // namespace lathe
