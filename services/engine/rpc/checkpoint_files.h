// Whether a checkpoint's files are still what its row says.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Whether somebody has removed the directory of `row` below `root`.
bool AreFilesMissing(const std::filesystem::path& root, const CheckpointRow& row);

// NotFound `checkpoint_missing` when the directory of `row` below `root` is gone,
// FailedPrecondition `checkpoint_damaged` when its manifest is not the one that was saved; what the
// manifest names, the worker checks as it loads.
absl::Status CheckFiles(const std::filesystem::path& root, const CheckpointRow& row);

}  // namespace lathe::engine
