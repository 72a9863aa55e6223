#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace lathe::worker {

namespace {

// Returns weights of logits with this standard deviation; every seventh weight is zero.
std::vector<float> RandomWeights(size_t size, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> weights(size);
  for (size_t i = 0; i < size; ++i) {
    weights[i] = i % 7 == 3 ? 0.0f : std::exp(std::min(spread * normal(random), 40.0f) - 40.0f);
  }
  return weights;
}

}  // namespace

TEST_CASE("GumbelMaxAmong finds the token that wins among all", "[kernels]") {
  const size_t size = GENERATE(4, 255, 256, 257, 20000);
  const float spread = GENERATE(0.0f, 0.1f, 1.0f, 10.0f);
  const std::vector<float> weights = RandomWeights(size, spread, static_cast<uint32_t>(size));
  std::vector<int32_t> all(size);
  std::iota(all.begin(), all.end(), 0);
  for (uint32_t position = 0; position < 50; ++position) {
    const SampleKey key = {.seed = 0x123456789abcdefULL, .sample_index = 3, .position = position};
    CHECK(GumbelMax(weights, key).token == GumbelMaxAmong(all, weights.data(), key));
  }
}

TEST_CASE("GumbelMax: the parts of a row have the winner of the whole row", "[kernels]") {
  const size_t size = 20000;
  const size_t cut = GENERATE(4, 252, 256, 9996, 19996);
  const std::vector<float> weights = RandomWeights(size, 1.0f, static_cast<uint32_t>(cut));
  const std::span<const float> all(weights);
  for (uint32_t position = 0; position < 50; ++position) {
    const SampleKey key = {.seed = 0x123456789abcdefULL, .sample_index = 3, .position = position};
    const GumbelMaxResult low = GumbelMax(all.first(cut), key);
    const GumbelMaxResult high = GumbelMax(all.subspan(cut), key, static_cast<int64_t>(cut));
    const GumbelMaxResult whole = GumbelMax(all, key);
    CHECK(low.token < static_cast<int64_t>(cut));
    CHECK(whole.token == (high.time < low.time ? high.token : low.token));
    CHECK(whole.time == std::min(low.time, high.time));
  }
}

namespace {

std::vector<int32_t> BySorting(const std::vector<float>& values, size_t k) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  order.resize(k);
  return order;
}

TEST_CASE("Top: the largest values, of equals the first", "[kernels]") {
  const size_t n = GENERATE(1, 2, 31, 255, 256, 257, 5000);
  const int distinct = GENERATE(1, 3, 50, 1 << 20);
  const unsigned seed = static_cast<unsigned>(n) * 7 + static_cast<unsigned>(distinct);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() % distinct)) - 10.0f;
  }
  if (n > 20) values[9] = -std::numeric_limits<float>::infinity();
  for (const size_t k : {size_t{0}, size_t{1}, size_t{20}, size_t{128}, n}) {
    if (k > n) continue;
    std::vector<int32_t> top(k);
    TopOf(values, top);
    CHECK(top == BySorting(values, k));
  }
}

}  // namespace

}  // namespace lathe::worker
