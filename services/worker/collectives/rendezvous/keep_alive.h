// Detects ranks whose host, or the network path to it, is gone without closing its connections.
#pragma once

#include "absl/time/time.h"

namespace lathe::worker {

// Configures every TCP connection that this process has open at the time of the call. Afterwards
// the connection fails when the other end's kernel is silent for `silence`, even while nothing is
// sent. `silence` is rounded down to seconds. A slow or stopped process is not silent, because its
// kernel answers, unless it leaves data unread for that long. Gloo has no setter for its sockets'
// timeouts, which are many minutes.
void KeepConnectionsAlive(absl::Duration silence);

}  // namespace lathe::worker
