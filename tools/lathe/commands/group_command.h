// `lathe move` and `lathe group`: assign models to worker groups.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status MoveCommand(int argc, const char* const* argv);
absl::Status GroupCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
