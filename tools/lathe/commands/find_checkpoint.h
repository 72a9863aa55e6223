// Finds the directory of a checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::cli {

// `name` is a directory with a manifest.json, or a tinker:// path, which is looked up in the
// manifests below `checkpoints`. No engine needs to run. Error: checkpoint_missing.
absl::StatusOr<std::filesystem::path> FindCheckpoint(const std::string& name,
                                                     const std::filesystem::path& checkpoints);

}  // namespace lathe::cli
