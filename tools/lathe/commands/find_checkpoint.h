// Finds the directory of a checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "libs/common/object_store/checkpoint_objects.h"

namespace lathe::cli {

// `name` is a directory with a manifest.json, or a tinker:// path, which is looked up in the
// manifests below `checkpoints`. No engine needs to run. Error: checkpoint_missing.
absl::StatusOr<std::filesystem::path> FindCheckpoint(const std::string& name,
                                                     const std::filesystem::path& checkpoints);

// Like FindCheckpoint, in a store of objects. Returns the name of the checkpoint's directory. Reads
// every manifest.
absl::StatusOr<std::string> FindStoredCheckpoint(const std::string& tinker_path,
                                                 CheckpointObjects& checkpoints);

}  // namespace lathe::cli
