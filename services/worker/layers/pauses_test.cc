#include "services/worker/layers/pauses.h"

#include <catch2/catch.hpp>

#include <utility>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/base_linear.h"

namespace lathe::worker {
namespace {

using Bites = std::vector<std::pair<int64_t, int64_t>>;

Bites BitesOf(int64_t num_items, int64_t num_products, int64_t grain) {
  Bites bites;
  RunInBites(num_items, num_products, grain, [&](int64_t begin, int64_t end) {
    bites.push_back({begin, end});
  });
  return bites;
}

}  // namespace

TEST_CASE("RunInBites: long work is cut where somebody waits for pauses", "[layers]") {
  CHECK(BitesOf(100, 4 * kBiteProducts, 2) == Bites{{0, 100}});
  int num_pauses = 0;
  const PauseScope scope([&] { ++num_pauses; });
  CHECK(BitesOf(100, kBiteProducts, 2) == Bites{{0, 100}});
  CHECK(num_pauses == 0);
  CHECK(BitesOf(100, 4 * kBiteProducts, 2) ==
        Bites{{0, 24}, {24, 48}, {48, 72}, {72, 96}, {96, 100}});
  CHECK(num_pauses == 5);
  CHECK(BitesOf(3, 100 * kBiteProducts, 2) == Bites{{0, 2}, {2, 3}});
}

TEST_CASE("PauseScope: what runs in a pause has none, and scopes end", "[layers]") {
  int num_pauses = 0;
  {
    const PauseScope scope([&] {
      ++num_pauses;
      CHECK_FALSE(HasPauses());
    });
    Pause();
    CHECK(HasPauses());
  }
  CHECK(num_pauses == 1);
  CHECK_FALSE(HasPauses());
}

TEST_CASE("Pauses: products and attention with them have the same bits", "[layers]") {
  const at::Tensor x = at::randn({1024, 2048});
  const BaseWeight w(at::randn({2112, 2048}));
  const at::Tensor q = at::randn({3000, 8, 64});
  const at::Tensor k = at::randn({3000, 2, 64});
  const at::Tensor v = at::randn({3000, 2, 64});
  const std::vector<int64_t> cu_seqlens = {0, 2990, 3000};
  constexpr MatmulArithmetic kArithmetic = MatmulArithmetic::kFp32;
  const auto run = [&] {
    const AttentionOutput out = CausalAttention(q, k, v, cu_seqlens, kArithmetic);
    const AttentionGradients d = CausalAttentionBackward(q, k, v, cu_seqlens, out, q, kArithmetic);
    return std::vector<at::Tensor>{BaseLinear(x, w, {}, kArithmetic), out.out, d.dq, d.dk, d.dv};
  };
  const std::vector<at::Tensor> expected = run();
  int num_pauses = 0;
  const PauseScope scope([&] { ++num_pauses; });
  const std::vector<at::Tensor> results = run();
  CHECK(num_pauses > 6);
  for (size_t i = 0; i < results.size(); ++i) CHECK(at::equal(results[i], expected[i]));
}

}  // namespace lathe::worker
