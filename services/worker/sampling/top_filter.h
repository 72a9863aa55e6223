// Top-k and top-p: which tokens may be drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/ops.h"

namespace lathe::worker {

inline bool HasTopFilter(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1;
}

// Ids of the tokens that remain, at least one: top-k keeps the k most likely, top-p then the fewest
// of those whose share of their probability reaches p. Of equals the lower id is the more likely.
// weights [V] are proportional to the probabilities, the largest is 1; `sum` is theirs.
std::vector<int32_t> FilterTop(std::span<const float> weights, double sum,
                               const SamplingParams& params);

}  // namespace lathe::worker
