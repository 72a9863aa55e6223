// `lathe up`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Runs until a stop signal. `argv[0]` is the verb.
absl::Status UpCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
