// lathe probe [--live|--ready|--serving|--startup] [URL]: asks a process of this machine how it is.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Prints one line if the process answers 200. Error unhealthy (exit code 1) otherwise.
absl::Status ProbeCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
