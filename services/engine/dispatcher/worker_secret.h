// What a worker of this data directory knows and others do not.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::engine {

// The text of RUN_DIR/secret; made (0600) when it is missing.
absl::StatusOr<std::string> LoadOrMakeSecret(const std::filesystem::path& run_dir);

// The secret of all engines on one store, made from `key`, which the store keeps: workers go from
// one engine to another. It takes the place of what RUN_DIR/secret holds.
absl::StatusOr<std::string> ShareSecret(const std::filesystem::path& run_dir,
                                        const std::string& key);

}  // namespace lathe::engine
