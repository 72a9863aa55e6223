// The secrets that authenticate the workers and the gateways of a data directory.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace lathe::engine {

// Returns the text of RUN_DIR/secret. NotFound: there is no such file.
absl::StatusOr<std::string> LoadSecret(const std::filesystem::path& run_dir);

// Writes the secret of workers to RUN_DIR/secret, in place of an earlier one.
absl::Status WriteWorkerSecret(const std::filesystem::path& run_dir, const std::string& secret);

// Writes the secret of gateways to RUN_DIR/gateway.secret, in place of an earlier one.
absl::Status WriteGatewaySecret(const std::filesystem::path& run_dir, const std::string& secret);

// Returns the secret that follows from `key` in the store: all engines on one store share it, and
// it outlives RUN_DIR. Replaces the content of RUN_DIR/secret.
absl::StatusOr<std::string> ShareSecret(const std::filesystem::path& run_dir,
                                        const std::string& key);

}  // namespace lathe::engine
