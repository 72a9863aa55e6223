// lathe secrets init: the secrets of a service whose processes start on several machines.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status SecretsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
