// How fast this machine runs the loaded model.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Tokens whose backward step of one layer takes about `duration`, measured by a few forward steps;
// a power of two, so that two starts on one machine agree.
int64_t MeasureTokensPerStep(const Model& model, absl::Duration duration);

}  // namespace lathe::worker
