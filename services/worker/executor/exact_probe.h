// Whether this machine keeps the promise of exact numerics.
#pragma once

#include "absl/status/status.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Runs a layer forward and backward, the unembedding, and a prefill and a decode pass of `model` on
// sequences of many lengths: alone and packed in two orders, on one thread and on all. OK: every
// sequence got the same bits each time. FailedPrecondition naming what did not.
absl::Status ProbeExactNumerics(const Model& model);

}  // namespace lathe::worker
