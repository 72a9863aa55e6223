// `lathe export`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Replaces this process by lathe-export, which merges the weights. Returns only on failure.
absl::Status ExportCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
