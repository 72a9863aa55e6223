#include "services/worker/sampling/sampler/top_filter.h"

#include <algorithm>
#include <numeric>

namespace lathe::worker {
namespace {

// Returns a comparison that sorts more likely tokens first. Ties favor the lower id.
auto MoreLikely(std::span<const float> weights) {
  return [weights](int32_t a, int32_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
}

// Returns the `k` most likely tokens, unordered. Sets `sum` to the sum of their weights.
std::vector<int32_t> MostLikely(std::span<const float> weights, int64_t k, double& sum) {
  std::vector<int32_t> tokens(weights.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::nth_element(tokens.begin(), tokens.begin() + k, tokens.end(), MoreLikely(weights));
  tokens.resize(k);
  sum = 0;
  for (const int32_t token : tokens) sum += weights[token];
  return tokens;
}

// Returns the tokens of weight `least` or more. Sets `sum` to the sum of their weights.
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

// Returns a superset of the tokens that top-p keeps. Usually few tokens hold most of the
// probability, and finding them costs less than partitioning the whole vocabulary.
std::vector<int32_t> CandidatesForTopP(std::span<const float> weights, double wanted) {
  double sum = 0;
  for (float least = 0.05f; least > 1e-8f; least *= 0.05f) {
    std::vector<int32_t> tokens = TokensFrom(weights, least, sum);
    if (sum >= wanted) return tokens;
  }
  return TokensFrom(weights, 0, sum);
}

// Keeps the fewest most likely of `tokens` whose weights sum to at least `wanted`, unordered.
// Bisects the undecided tokens until they are few enough to sort. Sorting all would be slow for a
// flat distribution, which leaves the whole vocabulary undecided.
void KeepTopP(std::span<const float> weights, double wanted, std::vector<int32_t>& tokens) {
  constexpr ptrdiff_t kFew = 64;
  const auto more_likely = MoreLikely(weights);
  auto begin = tokens.begin();  // tokens before `begin` are kept, from `end` on dropped
  auto end = tokens.end();
  double before = 0;  // sum of the weights before `begin`
  while (end - begin > kFew) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, more_likely);
    double sum = before;
    for (auto token = begin; token != middle; ++token) sum += weights[*token];
    if (sum >= wanted) {
      end = middle;
    } else {
      begin = middle;
      before = sum;
    }
  }
  std::sort(begin, end, more_likely);
  while (begin != end && (begin == tokens.begin() || before < wanted)) before += weights[*begin++];
  tokens.erase(begin, tokens.end());
}

}  // namespace

std::vector<int32_t> FilterTop(std::span<const float> weights, double sum,
                               const SamplingParams& params) {
  std::vector<int32_t> kept;
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(weights.size())) {
    kept = MostLikely(weights, params.top_k, sum);
  } else if (params.top_p < 1) {
    kept = CandidatesForTopP(weights, params.top_p * sum);
  } else {
    kept = TokensFrom(weights, static_cast<float>(params.min_p), sum);
  }
  if (params.top_p < 1) KeepTopP(weights, params.top_p * sum, kept);
  if (params.min_p > 0) {
    const auto least = static_cast<float>(params.min_p);
    std::erase_if(kept, [&](int32_t token) { return weights[token] < least; });
  }
  return kept;
}

}  // namespace lathe::worker
