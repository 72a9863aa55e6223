// `lathe checkpoints`: checkpoint folders that the database does not know.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Runs `checkpoints trash` or `checkpoints adopt DIR`; argv[0] is "checkpoints".
absl::Status CheckpointsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
