#include <catch2/catch.hpp>

#include <ATen/ATen.h>

#include "services/worker/layers/mlp.h"
#include "services/worker/layers/rms_norm.h"
#include "services/worker/layers/rope.h"

// Backward steps are compared with torch's autograd over the same forward, in fp64, where the two
// differ by rounding of order 1e-15 only.
namespace lathe::worker {
namespace {

constexpr double kTolerance = 1e-10;

at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

at::Tensor Leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(true); }

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

}  // namespace

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

}  // namespace lathe::worker
