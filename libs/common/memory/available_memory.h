// How much memory there is to use.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/statusor.h"

namespace lathe {

// Bytes this process and its children may still use: the smallest of MemAvailable and the memory
// limits of its cgroup (version 2, and every parent; version 1). `root` replaces "/" in tests.
absl::StatusOr<int64_t> AvailableMemoryBytes(const std::filesystem::path& root = "/");

}  // namespace lathe
