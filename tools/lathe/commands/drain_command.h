// lathe drain [--wait D] [URL]: asks a process of this machine to drain and end.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Sends SIGTERM to the process that answers on the page, or to the `lathe` that supervises it, and
// waits for its end. Errors: not_running; DeadlineExceeded if it lives after the wait.
absl::Status DrainCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
