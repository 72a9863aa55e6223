#include "services/worker/sampling/top_filter.h"

#include <algorithm>
#include <numeric>

namespace lathe::worker {
namespace {

// Of equals the lower id is the more likely.
auto MoreLikely(std::span<const float> weights) {
  return [weights](int32_t a, int32_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
}

// The `k` most likely tokens, in no order; sets `sum` to their weights' sum.
std::vector<int32_t> MostLikely(std::span<const float> weights, int64_t k, double& sum) {
  std::vector<int32_t> tokens(weights.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::nth_element(tokens.begin(), tokens.begin() + k, tokens.end(), MoreLikely(weights));
  tokens.resize(k);
  sum = 0;
  for (const int32_t token : tokens) sum += weights[token];
  return tokens;
}

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
// and finding them costs less than dividing the whole vocabulary.
std::vector<int32_t> CandidatesForTopP(std::span<const float> weights, double wanted) {
  double sum = 0;
  for (float least = 0.05f; least > 1e-8f; least *= 0.05f) {
    std::vector<int32_t> tokens = TokensFrom(weights, least, sum);
    if (sum >= wanted) return tokens;
  }
  return TokensFrom(weights, 0, sum);
}

// The fewest of `tokens`, from the most likely on, whose weights reach `wanted`; in no order.
// Halves those of which that is not known yet until they are few enough to sort: a flat
// distribution leaves the whole vocabulary.
void KeepTopP(std::span<const float> weights, double wanted, std::vector<int32_t>& tokens) {
  constexpr ptrdiff_t kFew = 64;
  const auto more_likely = MoreLikely(weights);
  auto begin = tokens.begin();  // all before are kept, none from `end` on
  auto end = tokens.end();
  double before = 0;  // weight of those before `begin`
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
