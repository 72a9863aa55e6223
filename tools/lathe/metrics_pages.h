// Where the processes of one machine have their pages of metrics.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lathe/listen_address.h"

namespace lathe::cli {

// `count` addresses: `text`, HOST:PORT, and the next ports, or free ones for port 0. None has
// `other_port`, that of `listen` (0: there is none). Errors that name metrics_listen: as ClaimPort,
// or configuration.
absl::StatusOr<std::vector<ListenAddress>> ClaimMetricsPages(const std::string& text, int count,
                                                             int other_port);

}  // namespace lathe::cli
