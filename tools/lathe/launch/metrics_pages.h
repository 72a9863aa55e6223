// Addresses of the metrics pages of one machine's processes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/lathe/launch/listen_address.h"

namespace lathe::cli {

// Returns `count` free addresses: `text` (HOST:PORT) and the ports after it, or any free ports if
// its port is 0. None of them has `other_port`, the port of `listen` (0: no such port). `patience`
// and errors are those of ClaimPort; a configuration error names metrics_listen.
absl::StatusOr<std::vector<ListenAddress>> ClaimMetricsPages(
    const std::string& text, int count, int other_port,
    absl::Duration patience = absl::ZeroDuration());

}  // namespace lathe::cli
