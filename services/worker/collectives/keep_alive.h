// How a rank knows that it has lost another whose host, or the way to it, is gone without a word.
#pragma once

#include "absl/time/time.h"

namespace lathe::worker {

// All TCP connections that this process has now fail once the other end's kernel has been silent
// for `silence`, in seconds, also when nothing is sent. A process that is slow or stopped is not
// silent, unless it leaves data unread for so long: its kernel answers. Gloo's own sockets have no
// setter for it, and wait for many minutes.
void KeepConnectionsAlive(absl::Duration silence);

}  // namespace lathe::worker
