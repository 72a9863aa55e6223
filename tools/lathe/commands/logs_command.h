// `lathe logs RUN`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status LogsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
