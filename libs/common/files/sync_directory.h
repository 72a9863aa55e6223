// Making changes of a directory durable.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace lathe {

// Makes creations, links and renames inside `dir` durable. The status of errno with the path.
absl::Status SyncDirectory(const std::filesystem::path& dir);

}  // namespace lathe
