// `lathe audit export`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status AuditCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
