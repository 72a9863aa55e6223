// Measures how fast this machine runs the loaded model.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Returns the time of one row in a forward step of one layer, measured over a few steps of some
// hundred rows, or some thousand on a GPU.
absl::Duration MeasureLayerRow(const Model& model);

// Returns the number of tokens whose backward step of one layer takes about `duration`. Both
// results below are powers of two, so that two starts on one machine agree.
int64_t TokensPerStep(absl::Duration layer_row, absl::Duration duration);
// Returns the number of prompt rows, 16 to 1,024, that lengthen a pass over `num_layers` by about
// `duration`.
int64_t PrefillTokens(absl::Duration layer_row, int64_t num_layers, absl::Duration duration);

}  // namespace lathe::worker
