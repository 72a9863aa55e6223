// Measures the memory that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

namespace lathe {

// Returns the bytes that this process and its children may still use. It is the smallest of
// MemAvailable and the limits of its cgroup (version 2 with all parents, or version 1). `root`
// replaces "/" in tests.
absl::StatusOr<int64_t> AvailableMemoryBytes(const std::filesystem::path& root = "/");

}  // namespace lathe
