// Makes changes of a directory durable.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace lathe {

// Makes creations, links and renames in `dir` durable. Errors have the status of errno and the
// path.
absl::Status SyncDirectory(const std::filesystem::path& dir);

}  // namespace lathe
