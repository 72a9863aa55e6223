// How fast this machine runs the loaded model.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// What a row costs in a forward step of one layer, measured by a few steps of some hundred rows.
absl::Duration MeasureLayerRow(const Model& model);

// Both are powers of two, so that two starts on one machine agree.
// Tokens whose backward step of one layer takes about `duration`.
int64_t TokensPerStep(absl::Duration layer_row, absl::Duration duration);
// Prompt rows, 16 to 1,024, that make a pass over `num_layers` about `duration` longer.
int64_t PrefillTokens(absl::Duration layer_row, int64_t num_layers, absl::Duration duration);

}  // namespace lathe::worker
