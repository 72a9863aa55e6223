// The engine and the gateway that `lathe ranks --with-service` runs beside its ranks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/config/option_set.h"
#include "tools/lathe/data_dir.h"
#include "tools/lathe/launch/child_process.h"

namespace lathe::cli {

inline constexpr char kServiceEngine[] = "engine";
inline constexpr char kServiceGateway[] = "gateway";

struct ServiceOptions {
  // The gateway's own options: how long its end takes.
  absl::Duration drain_delay;
  absl::Duration drain_timeout;

  // Time from SIGTERM to SIGKILL for the gateway.
  absl::Duration GatewayGrace() const { return drain_delay + drain_timeout + absl::Seconds(5); }
};

// Reads `options` as lathe-gateway does. They must outlive `set`.
void AddServiceOptions(OptionSet& set, ServiceOptions& options);

// Returns the engine and the gateway, which dials it on its socket. They have the directories of
// `dir` and take all other options from `config_path` (empty: no file) and the environment. A
// `worker_secret_file` that is not empty is the engine's too, unless the environment says another.
// Error configuration if a program is missing.
absl::StatusOr<std::vector<ChildSpec>> ServiceChildren(const DataDir& dir,
                                                       const std::string& config_path,
                                                       const std::string& worker_secret_file);

}  // namespace lathe::cli
