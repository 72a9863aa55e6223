// `lathe export`
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Becomes lathe-export, which has the arithmetic; returns only where that is not possible.
absl::Status ExportCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
