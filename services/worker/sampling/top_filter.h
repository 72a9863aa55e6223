// Top-k, top-p and min-p: which tokens may be drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/ops.h"

namespace lathe::worker {

inline bool HasTopFilter(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
}

// Ids of the tokens that remain, at least one: top-k keeps the k most likely, top-p then the fewest
// of those whose share of their probability reaches p, min-p of these those at least min_p times as
// likely as the most likely one. Of equals the lower id is the more likely. The order is that of HF
// Transformers; in vLLM min-p comes first, so that top-p may keep fewer.
// weights [V] are proportional to the probabilities, the largest is 1; `sum` is theirs.
std::vector<int32_t> FilterTop(std::span<const float> weights, double sum,
                               const SamplingParams& params);

}  // namespace lathe::worker
