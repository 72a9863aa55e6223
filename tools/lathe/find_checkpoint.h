// From a checkpoint's name to its directory.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::cli {

// `name` is a directory that holds a manifest.json, or a tinker:// path that is looked up in the
// manifests below `checkpoints`; the engine need not run. Error: checkpoint_missing.
absl::StatusOr<std::filesystem::path> FindCheckpoint(const std::string& name,
                                                     const std::filesystem::path& checkpoints);

}  // namespace lathe::cli
