#include <catch2/catch.hpp>

#include <atomic>

#include <ATen/ATen.h>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/qk_norm.h"
#include "services/worker/layers/rms_norm.h"
#include "services/worker/layers/rope.h"

// Backward steps are compared with torch's autograd over the same forward, in fp64, where the two
// differ by rounding of order 1e-15 only. CPU kernels exist for fp32, and are compared with torch
// operations in fp32.
namespace lathe::worker {
namespace {

constexpr double kTolerance = 1e-10;
constexpr double kFloatTolerance = 2e-6;

at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

at::Tensor Leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(true); }

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("ForRows: large work is divided among threads", "[layers]") {
  const int num_threads = at::get_num_threads();
  at::set_num_threads(2);
  std::atomic<int> num_parts = 0;
  ForRows(/*num_rows=*/1000, /*width=*/1000, [&](int64_t, int64_t) { ++num_parts; });
  at::set_num_threads(num_threads);
  CHECK(num_parts == 2);
}

TEST_CASE("RmsNorm: rows have unit mean square before the weight", "[layers]") {
  at::manual_seed(1);
  const at::Tensor y = RmsNorm(Random({5, 8}) * 7, at::ones({8}, at::kDouble), /*eps=*/0);
  CHECK(MaxDiff(y.square().mean(-1), at::ones({5}, at::kDouble)) < kTolerance);
}

TEST_CASE("RmsNorm: backward equals autograd", "[layers]") {
  at::manual_seed(2);
  const at::Tensor x = Leaf(Random({3, 2, 8}));
  const at::Tensor weight = Random({8});
  const at::Tensor dy = Random({3, 2, 8});
  RmsNorm(x, weight, 1e-3).backward(dy);
  CHECK(MaxDiff(RmsNormBackward(x.detach(), weight, 1e-3, dy), x.grad()) < kTolerance);
}

TEST_CASE("ApplyRope: rotates element i with element i + D/2 by position times frequency",
          "[layers]") {
  const RopeTable table(/*head_dim=*/4, /*num_positions=*/16, /*theta=*/100.0, at::kCPU);
  const auto [cos, sin] = table.At(at::tensor({3}, at::kLong));
  const at::Tensor x = at::tensor({1.0f, 2.0f, 3.0f, 4.0f}).view({1, 1, 4});
  const at::Tensor y = ApplyRope(x, cos, sin).view({4});
  // Frequencies are theta^0 = 1 and theta^(-1/2) = 0.1.
  CHECK(y[0].item<double>() == Approx(1 * std::cos(3.0) - 3 * std::sin(3.0)).epsilon(1e-5));
  CHECK(y[2].item<double>() == Approx(3 * std::cos(3.0) + 1 * std::sin(3.0)).epsilon(1e-5));
  CHECK(y[1].item<double>() == Approx(2 * std::cos(0.3) - 4 * std::sin(0.3)).epsilon(1e-5));
  CHECK(y[3].item<double>() == Approx(4 * std::cos(0.3) + 2 * std::sin(0.3)).epsilon(1e-5));
}

TEST_CASE("ApplyRope: backward undoes forward", "[layers]") {
  at::manual_seed(3);
  const RopeTable table(8, 32, 1e4, at::kCPU);
  const auto [cos, sin] = table.At(at::tensor({0, 5, 31}, at::kLong));
  const at::Tensor x = at::randn({3, 2, 8});
  CHECK(MaxDiff(ApplyRopeBackward(ApplyRope(x, cos, sin), cos, sin), x) < 1e-6);
}

TEST_CASE("SiluMul: backward equals autograd", "[layers]") {
  at::manual_seed(4);
  const at::Tensor gate = Leaf(Random({4, 6}));
  const at::Tensor up = Leaf(Random({4, 6}));
  const at::Tensor dy = Random({4, 6});
  (at::silu(gate) * up).backward(dy);
  at::Tensor stacked = at::empty({4, 12}, at::kDouble);
  SiluMulBackward(gate.detach(), up.detach(), dy, stacked.narrow(1, 0, 6), stacked.narrow(1, 6, 6));
  CHECK(MaxDiff(stacked.narrow(1, 0, 6), gate.grad()) < kTolerance);
  CHECK(MaxDiff(stacked.narrow(1, 6, 6), up.grad()) < kTolerance);
  CHECK(MaxDiff(SiluMul(gate.detach(), up.detach()), (at::silu(gate) * up).detach()) < kTolerance);
}

TEST_CASE("RmsNorm: the kernel equals torch operations, row by row", "[layers]") {
  at::manual_seed(5);
  const int64_t width = GENERATE(5, 16, 64, 1000);
  const at::Tensor x = at::randn({200, width + 3}).narrow(1, 2, width);  // rows that lie apart
  const at::Tensor weight = at::randn({width});
  const at::Tensor y = RmsNorm(x, weight, 1e-6);
  CHECK(MaxDiff(y, RmsNormByTorch(x, weight, 1e-6)) < kFloatTolerance * 4);
  CHECK(at::equal(RmsNorm(x.narrow(0, 17, 1), weight, 1e-6), y.narrow(0, 17, 1)));
}

TEST_CASE("NormRope: the kernel equals torch operations, row by row", "[layers]") {
  at::manual_seed(6);
  const int64_t head_dim = GENERATE(6, 16, 64, 128);
  const RopeTable rope(head_dim, /*num_positions=*/300, /*theta=*/1e4, at::kCPU);
  const at::Tensor packed = at::randn({40, 8 * head_dim});
  const QkHeads heads = {packed.narrow(1, 0, 4 * head_dim).view({40, 4, head_dim}),
                         packed.narrow(1, 4 * head_dim, 2 * head_dim).view({40, 2, head_dim})};
  const at::Tensor q_weight = at::randn({head_dim});
  const at::Tensor k_weight = at::randn({head_dim});
  const QkNormWeights weights = {.q_weight = q_weight, .k_weight = k_weight, .eps = 1e-6};
  const at::Tensor positions = at::randint(300, {40}, at::kLong);
  const QkHeads y = NormRope(heads, weights, rope, positions);
  const QkHeads expected = NormRopeByTorch(heads, weights, rope, positions);
  CHECK(MaxDiff(y.q, expected.q) < kFloatTolerance * 4);
  CHECK(MaxDiff(y.k, expected.k) < kFloatTolerance * 4);
  const QkHeads alone = NormRope({heads.q.narrow(0, 9, 1), heads.k.narrow(0, 9, 1)}, weights, rope,
                                 positions.narrow(0, 9, 1));
  CHECK(at::equal(alone.q, y.q.narrow(0, 9, 1)));
  CHECK(at::equal(alone.k, y.k.narrow(0, 9, 1)));
}

TEST_CASE("SiluMul: the kernel equals torch operations from -200 to 200", "[layers]") {
  const at::Tensor gate = at::linspace(-200, 200, 6 * 1003, at::kFloat).view({6, 1003});
  const at::Tensor up = at::ones({6, 2000}).narrow(1, 500, 1003);
  const at::Tensor y = SiluMul(gate, up);
  const at::Tensor expected = SiluMulByTorch(gate, up);
  CHECK(((y - expected).abs() <= expected.abs() * kFloatTolerance + 1e-30).all().item<bool>());
  CHECK(at::equal(SiluMul(gate.narrow(0, 3, 1), up.narrow(0, 3, 1)), y.narrow(0, 3, 1)));
}

}  // namespace lathe::worker
