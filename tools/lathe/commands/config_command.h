// `lathe config check FILE`: whether every Lathe program accepts a configuration file.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Runs each program beside this one with --check-config, which prints its errors. Fails with
// "configuration" if one refuses the file. A program that is not installed is named.
absl::Status ConfigCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
