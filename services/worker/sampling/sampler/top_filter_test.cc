#include "services/worker/sampling/sampler/top_filter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

namespace lathe::worker {
namespace {

// Top-p by sorting all tokens.
std::vector<int32_t> TopPBySorting(const std::vector<float>& weights, double wanted) {
  std::vector<int32_t> tokens(weights.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](int32_t a, int32_t b) { return weights[a] > weights[b]; });
  double before = 0;
  size_t count = 0;
  while (count < tokens.size() && (count == 0 || before < wanted)) {
    before += weights[tokens[count++]];
  }
  tokens.resize(count);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<int32_t> TopP(const std::vector<float>& weights, double top_p, double sum) {
  std::vector<int32_t> tokens = FilterTop(weights, sum, {.top_p = top_p});
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST_CASE("Top-p keeps what sorting all tokens keeps, of equals the lower ids", "[sampling]") {
  std::mt19937 random(GENERATE(1u, 2u, 3u));
  // Spread 0 gives equal weights. With a large spread, few tokens hold nearly all the weight.
  const double spread = GENERATE(0.0, 0.01, 1.0, 8.0);
  // Rounds weights to multiples of 1 / kSteps. So many are equal, and sums are exact in any order.
  constexpr double kSteps = 1 << 20;
  std::vector<float> weights(20000);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (float& weight : weights) {
    weight = static_cast<float>(std::round(std::exp(-spread * uniform(random)) * kSteps) / kSteps);
  }
  weights[777] = 1;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double top_p : {1e-9, 0.1, 0.5, 0.9, 0.9999999}) {
    CHECK(TopP(weights, top_p, sum) == TopPBySorting(weights, top_p * sum));
  }
}

TEST_CASE("Top-p leaves tokens of no weight out, and keeps one in any case", "[sampling]") {
  std::vector<float> weights(1000, 0.0f);
  weights[5] = 1;
  weights[7] = 0.5;
  CHECK(TopP(weights, 0.999999, 1.5) == std::vector<int32_t>{5, 7});
  CHECK(TopP(weights, 0.5, 1.5) == std::vector<int32_t>{5});
  CHECK(TopP(weights, 1e-300, 1.5) == std::vector<int32_t>{5});
}

}  // namespace
}  // namespace lathe::worker
