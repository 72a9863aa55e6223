// Checks that this machine computes exactly: results do not depend on batching or threads.
#pragma once

#include "absl/status/status.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Runs a layer forward and backward, the unembedding, and a prefill and a decode pass of `model` on
// sequences of many lengths. Runs them alone on one thread, and packed in two orders on all
// threads. OK: every sequence got the same bits each time. FailedPrecondition names the result that
// differs.
absl::Status ProbeExactNumerics(const Model& model);

}  // namespace lathe::worker
