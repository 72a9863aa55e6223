// `lathe keys create|list|revoke|rotate`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// `argv[0]` is the verb `keys`, `argv[1]` the action.
absl::Status KeysCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
