#include "services/worker/sampling/top_filter.h"

#include <algorithm>
#include <numeric>

namespace lathe::worker {
namespace {

// Tokens of weight `least` and more; sets `sum` to their weights' sum.
std::vector<int32_t> TokensFrom(std::span<const float> weights, float least, double& sum) {
  std::vector<int32_t> tokens;
  sum = 0;
  for (size_t token = 0; token < weights.size(); ++token) {
    if (weights[token] < least) continue;
    tokens.push_back(static_cast<int32_t>(token));
    sum += weights[token];
  }
  return tokens;
}

// A set that contains every token top-p keeps. As a rule few tokens hold most of the probability,
// and ordering the whole vocabulary would cost more than all else here.
std::vector<int32_t> CandidatesForTopP(std::span<const float> weights, double wanted) {
  double sum = 0;
  for (float least = 0.05f; least > 1e-8f; least *= 0.05f) {
    std::vector<int32_t> tokens = TokensFrom(weights, least, sum);
    if (sum >= wanted) return tokens;
  }
  return TokensFrom(weights, 0, sum);
}

}  // namespace

std::vector<int32_t> FilterTop(std::span<const float> weights, double sum,
                               const SamplingParams& params) {
  const auto is_more_likely = [&](int32_t a, int32_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  std::vector<int32_t> kept;
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(weights.size())) {
    kept.resize(weights.size());
    std::iota(kept.begin(), kept.end(), 0);
    std::nth_element(kept.begin(), kept.begin() + params.top_k, kept.end(), is_more_likely);
    kept.resize(params.top_k);
    sum = 0;
    for (const int32_t token : kept) sum += weights[token];
  } else {
    kept = CandidatesForTopP(weights, params.top_p * sum);
  }
  if (params.top_p >= 1) return kept;

  std::sort(kept.begin(), kept.end(), is_more_likely);
  double before = 0;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || before < params.top_p * sum)) {
    before += weights[kept[count++]];
  }
  kept.resize(count);
  return kept;
}

}  // namespace lathe::worker
