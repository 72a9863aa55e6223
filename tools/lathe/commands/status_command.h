// `lathe status`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// `argv[0]` is the verb.
absl::Status StatusCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
