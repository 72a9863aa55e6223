// `lathe metrics`: metrics of runs over the HTTP API.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// `lathe metrics follow` and `lathe metrics show`; argv[0] is the verb. Errors: usage for wrong
// arguments and a missing key, configuration for a bad certificate file, and those of ApiClient.
absl::Status MetricsCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
