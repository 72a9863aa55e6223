// Top-k, top-p and min-p filters for the tokens of a draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/ops/sampling.h"

namespace lathe::worker {

inline bool HasTopFilter(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
}

// Returns the ids of the tokens that remain, at least one. Top-k keeps the k most likely. Top-p
// then keeps the fewest of these whose share of the remaining probability reaches p. Min-p then
// keeps those at least min_p times as likely as the most likely token. Ties favor the lower id. The
// order is that of HF Transformers; vLLM applies min-p first, so its top-p may keep fewer.
// weights [V] are proportional to the probabilities, with maximum 1; `sum` is their sum.
std::vector<int32_t> FilterTop(std::span<const float> weights, double sum,
                               const SamplingParams& params);

}  // namespace lathe::worker
