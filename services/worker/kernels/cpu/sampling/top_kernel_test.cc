#include "services/worker/kernels/cpu/sampling/top_kernel.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

namespace lathe::worker {
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
