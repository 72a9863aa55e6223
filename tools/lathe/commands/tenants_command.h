// `lathe tenants list|set-quota`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// `argv[0]` is the verb `tenants`, `argv[1]` the action.
absl::Status TenantsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
