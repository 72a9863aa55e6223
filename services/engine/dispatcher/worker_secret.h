// What a worker of this data directory knows and others do not.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::engine {

// The text of RUN_DIR/secret; made (0600) when it is missing.
absl::StatusOr<std::string> LoadOrMakeSecret(const std::filesystem::path& run_dir);

}  // namespace lathe::engine
