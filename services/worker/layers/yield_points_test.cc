#include "services/worker/layers/yield_points.h"

#include <catch2/catch.hpp>

#include <utility>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/base_linear.h"

namespace lathe::worker {
namespace {

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

Pieces PiecesOf(int64_t num_items, int64_t num_products, int64_t grain) {
  Pieces pieces;
  RunInPieces(num_items, num_products, grain, [&](int64_t begin, int64_t end) {
    pieces.push_back({begin, end});
  });
  return pieces;
}

}  // namespace

TEST_CASE("RunInPieces: long work is cut inside a YieldScope", "[layers]") {
  CHECK(PiecesOf(100, 4 * kPieceProducts, 2) == Pieces{{0, 100}});
  int num_yields = 0;
  const YieldScope scope([&] { ++num_yields; });
  CHECK(PiecesOf(100, kPieceProducts, 2) == Pieces{{0, 100}});
  CHECK(num_yields == 0);
  CHECK(PiecesOf(100, 4 * kPieceProducts, 2) ==
        Pieces{{0, 24}, {24, 48}, {48, 72}, {72, 96}, {96, 100}});
  CHECK(num_yields == 5);
  CHECK(PiecesOf(3, 100 * kPieceProducts, 2) == Pieces{{0, 2}, {2, 3}});
}

TEST_CASE("YieldScope: work at a yield point has none, and scopes end", "[layers]") {
  int num_yields = 0;
  {
    const YieldScope scope([&] {
      ++num_yields;
      CHECK_FALSE(HasYieldPoints());
    });
    Yield();
    CHECK(HasYieldPoints());
  }
  CHECK(num_yields == 1);
  CHECK_FALSE(HasYieldPoints());
}

TEST_CASE("Yield points: products and attention with them have the same bits", "[layers]") {
  const at::Tensor x = at::randn({1024, 2048});
  const BaseWeight w(at::randn({2112, 2048}));
  const at::Tensor q = at::randn({3000, 8, 64});
  const at::Tensor k = at::randn({3000, 2, 64});
  const at::Tensor v = at::randn({3000, 2, 64});
  const std::vector<int64_t> cu_seqlens = {0, 2990, 3000};
  constexpr MatmulArithmetic kArithmetic = MatmulArithmetic::kFp32;
  const AttentionSpec spec = {.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .scale = 0.125};
  const auto run = [&] {
    const AttentionOutput out = CausalAttention(spec, q, k, v, cu_seqlens, kArithmetic);
    const AttentionGradients d =
        CausalAttentionBackward(spec, q, k, v, cu_seqlens, out, q, kArithmetic);
    return std::vector<at::Tensor>{BaseLinear(x, w, {}, kArithmetic), out.out, d.dq, d.dk, d.dv};
  };
  const std::vector<at::Tensor> expected = run();
  int num_yields = 0;
  const YieldScope scope([&] { ++num_yields; });
  const std::vector<at::Tensor> results = run();
  CHECK(num_yields > 6);
  for (size_t i = 0; i < results.size(); ++i) CHECK(at::equal(results[i], expected[i]));
}

}  // namespace lathe::worker
