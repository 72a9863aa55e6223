// Checks of a checkpoint's files against its row.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Returns true if the directory of `row` below `root` is missing.
bool AreFilesMissing(const std::filesystem::path& root, const CheckpointRow& row);

// Returns NotFound `checkpoint_missing` if the directory of `row` below `root` is missing, and
// FailedPrecondition `checkpoint_damaged` if its manifest differs from the saved one. The worker
// checks the files that the manifest lists when it loads them.
absl::Status CheckFiles(const std::filesystem::path& root, const CheckpointRow& row);

}  // namespace lathe::engine
