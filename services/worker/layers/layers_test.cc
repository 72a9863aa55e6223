#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
#include "services/worker/layers/rope.h"
#include "services/worker/testing/test_diff.h"
#include "services/worker/torch/aten.h"

// Backward steps are compared with torch's autograd over the same forward step. This is done in
// fp64, where both differ by about 1e-15 only. CPU kernels exist for fp32 only and are compared
// with torch operations in fp32.
namespace lathe::worker {
namespace {

constexpr double kTolerance = 1e-10;
constexpr double kFloatTolerance = 2e-6;

at::Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

at::Tensor Leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(true); }

}  // namespace

TEST_CASE("ForRows: large work is divided among threads", "[layers]") {
  const int num_threads = at::get_num_threads();
  at::set_num_threads(2);
  std::atomic<int> num_parts = 0;
  std::atomic<int64_t> num_rows = 0;
  ForRows(/*num_rows=*/1000, /*width=*/1000, [&](int64_t begin, int64_t end) {
    ++num_parts;
    num_rows += end - begin;
    // A second thread must take a part; otherwise this never ends.
    while (num_parts < 2) std::this_thread::yield();
  });
  at::set_num_threads(num_threads);
  CHECK(num_parts == 2 * kTasksPerThread);
  CHECK(num_rows == 1000);
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
  const at::Tensor stacked = at::cat({gate.detach(), up.detach()}, 1);
  SiluMulBackward(stacked.narrow(1, 0, 6), stacked.narrow(1, 6, 6), dy);
  CHECK(MaxDiff(stacked.narrow(1, 0, 6), gate.grad()) < kTolerance);
  CHECK(MaxDiff(stacked.narrow(1, 6, 6), up.grad()) < kTolerance);
  CHECK(MaxDiff(SiluMul(gate.detach(), up.detach()), (at::silu(gate) * up).detach()) < kTolerance);
}

TEST_CASE("RmsNorm: the kernel equals torch operations, row by row", "[layers]") {
  at::manual_seed(5);
  const int64_t width = GENERATE(5, 16, 64, 1000);
  const at::Tensor x = at::randn({200, width + 3}).narrow(1, 2, width);  // strided rows
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

TEST_CASE("SiluMulBackward: the kernel equals autograd in fp64 from -200 to 200, row by row",
          "[layers]") {
  at::manual_seed(7);
  constexpr int64_t kWidth = 1003;
  const at::Tensor stacked = at::randn({6, 2 * kWidth});
  stacked.narrow(1, 0, kWidth).copy_(at::linspace(-200, 200, 6 * kWidth).view({6, kWidth}));
  const at::Tensor dy = at::randn({6, kWidth});
  const at::Tensor inputs = Leaf(stacked.to(at::kDouble));
  (at::silu(inputs.narrow(1, 0, kWidth)) * inputs.narrow(1, kWidth, kWidth)).backward(dy);

  const at::Tensor alone = stacked.narrow(0, 3, 1).clone();
  SiluMulBackward(stacked.narrow(1, 0, kWidth), stacked.narrow(1, kWidth, kWidth), dy);
  const at::Tensor expected = inputs.grad();
  CHECK(((stacked - expected).abs() <= expected.abs() * kFloatTolerance + 2e-6).all().item<bool>());
  SiluMulBackward(alone.narrow(1, 0, kWidth), alone.narrow(1, kWidth, kWidth), dy.narrow(0, 3, 1));
  CHECK(at::equal(alone, stacked.narrow(0, 3, 1)));
}

TEST_CASE("RmsNormBackward: the kernel equals autograd in fp64, row by row", "[layers]") {
  at::manual_seed(8);
  const int64_t width = GENERATE(5, 16, 64, 1000);
  const at::Tensor x = at::randn({200, width + 3}).narrow(1, 2, width);
  const at::Tensor weight = at::randn({width});
  const at::Tensor dy = at::randn({200, width});
  const at::Tensor residual = at::randn({200, width + 1}).narrow(1, 1, width);
  const at::Tensor x64 = Leaf(x.to(at::kDouble));
  RmsNorm(x64, weight.to(at::kDouble), 1e-6).backward(dy.to(at::kDouble));

  const at::Tensor dx = RmsNormBackward(x, weight, 1e-6, dy);
  CHECK(MaxDiff(dx, x64.grad()) < kFloatTolerance * x64.grad().abs().max().item<double>());
  CHECK(MaxDiff(RmsNormBackwardOnto(residual, x, weight, 1e-6, dy.clone()), x64.grad() + residual) <
        2 * kFloatTolerance * 4);
  CHECK(at::equal(RmsNormBackward(x.narrow(0, 17, 1), weight, 1e-6, dy.narrow(0, 17, 1)),
                  dx.narrow(0, 17, 1)));
}

TEST_CASE("NormRopeBackward: the kernel equals autograd in fp64, row by row", "[layers]") {
  at::manual_seed(9);
  const int64_t head_dim = GENERATE(6, 16, 64, 128);
  const RopeTable rope(head_dim, /*num_positions=*/300, /*theta=*/1e4, at::kCPU);
  const at::Tensor packed = at::randn({40, 8 * head_dim});
  const auto heads_of = [&](const at::Tensor& rows) {
    return QkHeads{rows.narrow(1, 0, 4 * head_dim).view({-1, 4, head_dim}),
                   rows.narrow(1, 4 * head_dim, 2 * head_dim).view({-1, 2, head_dim})};
  };
  const at::Tensor q_weight = at::randn({head_dim});
  const at::Tensor k_weight = at::randn({head_dim});
  const QkNormWeights weights = {.q_weight = q_weight, .k_weight = k_weight, .eps = 1e-6};
  const at::Tensor positions = at::randint(300, {40}, at::kLong);
  const QkHeads d = {at::randn({40, 4, head_dim}), at::randn({40, 2, head_dim})};
  const auto copy_of = [](const QkHeads& heads, int64_t row, int64_t n) {
    return QkHeads{heads.q.narrow(0, row, n).clone(), heads.k.narrow(0, row, n).clone()};
  };

  const at::Tensor packed64 = Leaf(packed.to(at::kDouble));
  const at::Tensor q64 = q_weight.to(at::kDouble);
  const at::Tensor k64 = k_weight.to(at::kDouble);
  const auto [cos, sin] = rope.At(positions);
  const auto forward = [&, c = cos, s = sin](const at::Tensor& x, const at::Tensor& weight) {
    const std::vector<at::Tensor> halves = RmsNormByTorch(x, weight, 1e-6).chunk(2, -1);
    return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
  };
  const QkHeads leaves = heads_of(packed64);
  at::add((forward(leaves.q, q64) * d.q).sum(), (forward(leaves.k, k64) * d.k).sum()).backward();

  const at::Tensor alone = packed.narrow(0, 9, 1).clone();
  NormRopeBackward(heads_of(alone), weights, rope, positions.narrow(0, 9, 1), copy_of(d, 9, 1));
  const at::Tensor v = packed.narrow(1, 6 * head_dim, 2 * head_dim).clone();
  NormRopeBackward(heads_of(packed), weights, rope, positions, copy_of(d, 0, 40));
  const at::Tensor expected = packed64.grad().narrow(1, 0, 6 * head_dim);
  CHECK(MaxDiff(packed.narrow(1, 0, 6 * head_dim), expected) <
        kFloatTolerance * expected.abs().max().item<double>());
  CHECK(at::equal(packed.narrow(1, 6 * head_dim, 2 * head_dim), v));
  CHECK(at::equal(alone, packed.narrow(0, 9, 1)));
}

}  // namespace lathe::worker
