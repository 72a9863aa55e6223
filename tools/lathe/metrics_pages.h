// Addresses of the metrics pages of one machine's processes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lathe/listen_address.h"

namespace lathe::cli {

// Returns `count` free addresses: `text` (HOST:PORT) and the ports after it, or any free ports if
// its port is 0. None of them has `other_port`, the port of `listen` (0: no such port). Errors:
// those of ClaimPort, and configuration, which names metrics_listen.
absl::StatusOr<std::vector<ListenAddress>> ClaimMetricsPages(const std::string& text, int count,
                                                             int other_port);

}  // namespace lathe::cli
