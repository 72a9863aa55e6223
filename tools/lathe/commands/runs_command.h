// `lathe runs` and `lathe runs show RUN`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status RunsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
