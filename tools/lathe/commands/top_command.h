// `lathe top`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status TopCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
