// lathe selftest --url URL: trains one step and samples, as a check of a whole service.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status SelftestCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
