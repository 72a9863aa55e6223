// One training step and one sample over the public API, as a check of a whole service.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/lathe/selftest/api_client.h"

namespace lathe::cli {

struct SelfTestOptions {
  // Base model; empty: the first that is served.
  std::string model;
  absl::Duration timeout;
};

// Creates a session and a LoRA model, runs forward_backward, optim_step and forward on a few
// tokens, checks that the loss fell, samples from the new weights, and finishes the session. Prints
// a line for each step. Error selftest_failed names the step that failed.
absl::Status RunSelfTest(ApiClient& api, const SelfTestOptions& options);

}  // namespace lathe::cli
