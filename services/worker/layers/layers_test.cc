#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/mlp.h"
#include "services/worker/layers/norms.h"
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

at::Tensor Activated(Activation activation, const at::Tensor& x) {
  return activation == Activation::kSilu ? at::silu(x) : at::gelu(x, "tanh");
}

TEST_CASE("GatedActivation: backward equals autograd", "[layers]") {
  at::manual_seed(4);
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const at::Tensor gate = Leaf(Random({4, 6}));
  const at::Tensor up = Leaf(Random({4, 6}));
  const at::Tensor dy = Random({4, 6});
  const at::Tensor expected = Activated(activation, gate) * up;
  expected.backward(dy);
  const at::Tensor stacked = at::cat({gate.detach(), up.detach()}, 1);
  GatedActivationBackward(activation, stacked.narrow(1, 0, 6), stacked.narrow(1, 6, 6), dy);
  CHECK(MaxDiff(stacked.narrow(1, 0, 6), gate.grad()) < kTolerance);
  CHECK(MaxDiff(stacked.narrow(1, 6, 6), up.grad()) < kTolerance);
  CHECK(MaxDiff(GatedActivation(activation, gate.detach(), up.detach()), expected.detach()) <
        kTolerance);
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

// Preparations with and without either step.
struct Preparations {
  explicit Preparations(int64_t head_dim)
      : rope({.theta = 1e4}, head_dim, /*num_positions=*/300, at::kCPU),
        q_norm(at::randn({head_dim})),
        k_norm(at::randn({head_dim})) {}

  QkPreparation Of(bool has_norm, bool has_rope, const at::Tensor& positions) const {
    QkPreparation preparation;
    if (has_norm) preparation = {.q_norm = q_norm, .k_norm = k_norm, .eps = 1e-6};
    if (has_rope) {
      preparation.rope = &rope;
      preparation.positions = positions;
    }
    return preparation;
  }

  RopeTable rope;
  at::Tensor q_norm;
  at::Tensor k_norm;
};

// Returns the heads of 40 rows of six (or eight) heads: four of queries, two of keys.
QkHeads HeadsOf(const at::Tensor& rows, int64_t head_dim) {
  return {rows.narrow(1, 0, 4 * head_dim).view({-1, 4, head_dim}),
          rows.narrow(1, 4 * head_dim, 2 * head_dim).view({-1, 2, head_dim})};
}

TEST_CASE("PrepareQk: the kernel equals torch operations, row by row", "[layers]") {
  at::manual_seed(6);
  const int64_t head_dim = GENERATE(6, 16, 64, 128, 256);
  const bool has_norm = GENERATE(false, true);
  const bool has_rope = GENERATE(false, true);
  const Preparations preparations(head_dim);
  const QkHeads heads = HeadsOf(at::randn({40, 8 * head_dim}), head_dim);
  const at::Tensor positions = at::randint(300, {40}, at::kLong);
  const QkPreparation preparation = preparations.Of(has_norm, has_rope, positions);
  const QkHeads y = PrepareQk(heads, preparation);
  const QkHeads expected = PrepareQkByTorch(heads, preparation);
  CHECK(MaxDiff(y.q, expected.q) < kFloatTolerance * 4);
  CHECK(MaxDiff(y.k, expected.k) < kFloatTolerance * 4);
  const QkHeads alone = PrepareQk({heads.q.narrow(0, 9, 1), heads.k.narrow(0, 9, 1)},
                                  preparations.Of(has_norm, has_rope, positions.narrow(0, 9, 1)));
  CHECK(at::equal(alone.q, y.q.narrow(0, 9, 1)));
  CHECK(at::equal(alone.k, y.k.narrow(0, 9, 1)));
}

TEST_CASE("GatedActivation: the kernel equals torch in fp64 from -200 to 200", "[layers]") {
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const at::Tensor gate = at::linspace(-200, 200, 6 * 1003, at::kFloat).view({6, 1003});
  const at::Tensor up = at::ones({6, 2000}).narrow(1, 500, 1003);
  const at::Tensor y = GatedActivation(activation, gate, up);
  const at::Tensor expected = Activated(activation, gate.to(at::kDouble));
  // The exponent of gelu is a polynomial, whose rounding shows where the result is small.
  const double smallest = activation == Activation::kSilu ? 1e-30 : 1e-7;
  CHECK(((y - expected).abs() <= expected.abs() * kFloatTolerance + smallest).all().item<bool>());
  CHECK(at::equal(GatedActivation(activation, gate.narrow(0, 3, 1), up.narrow(0, 3, 1)),
                  y.narrow(0, 3, 1)));
}

TEST_CASE("GatedActivationBackward: the kernel equals autograd in fp64, row by row", "[layers]") {
  at::manual_seed(7);
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  constexpr int64_t kWidth = 1003;
  const at::Tensor stacked = at::randn({6, 2 * kWidth});
  stacked.narrow(1, 0, kWidth).copy_(at::linspace(-200, 200, 6 * kWidth).view({6, kWidth}));
  stacked.narrow(0, 3, 1).narrow(1, 0, kWidth).copy_(at::linspace(-6, 6, kWidth));
  const at::Tensor dy = at::randn({6, kWidth});
  const at::Tensor inputs = Leaf(stacked.to(at::kDouble));
  (Activated(activation, inputs.narrow(1, 0, kWidth)) * inputs.narrow(1, kWidth, kWidth))
      .backward(dy);

  const auto backward = [&](const at::Tensor& rows, const at::Tensor& dout) {
    GatedActivationBackward(activation, rows.narrow(1, 0, kWidth), rows.narrow(1, kWidth, kWidth),
                            dout);
  };
  const at::Tensor alone = stacked.narrow(0, 3, 1).clone();
  backward(stacked, dy);
  const at::Tensor expected = inputs.grad();
  CHECK(((stacked - expected).abs() <= expected.abs() * kFloatTolerance + 2e-6).all().item<bool>());
  backward(alone, dy.narrow(0, 3, 1));
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

TEST_CASE("PrepareQkBackward: the kernel equals autograd in fp64, row by row", "[layers]") {
  at::manual_seed(9);
  const int64_t head_dim = GENERATE(6, 16, 64, 128, 256);
  const bool has_norm = GENERATE(false, true);
  const bool has_rope = GENERATE(false, true);
  const Preparations preparations(head_dim);
  const at::Tensor packed = at::randn({40, 8 * head_dim});
  const at::Tensor positions = at::randint(300, {40}, at::kLong);
  const QkHeads d = {at::randn({40, 4, head_dim}), at::randn({40, 2, head_dim})};
  const auto copy_of = [](const QkHeads& heads, int64_t row, int64_t n) {
    return QkHeads{heads.q.narrow(0, row, n).clone(), heads.k.narrow(0, row, n).clone()};
  };

  const at::Tensor packed64 = Leaf(packed.to(at::kDouble));
  const auto [cos, sin] = preparations.rope.At(positions);
  const auto forward = [&, c = cos, s = sin](const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor normed = has_norm ? RmsNormByTorch(x, weight.to(at::kDouble), 1e-6) : x;
    const std::vector<at::Tensor> halves = normed.chunk(2, -1);
    return has_rope ? at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1)
                    : normed;
  };
  const QkHeads leaves = HeadsOf(packed64, head_dim);
  at::add((forward(leaves.q, preparations.q_norm) * d.q).sum(),
          (forward(leaves.k, preparations.k_norm) * d.k).sum())
      .backward();

  const at::Tensor alone = packed.narrow(0, 9, 1).clone();
  PrepareQkBackward(HeadsOf(alone, head_dim),
                    preparations.Of(has_norm, has_rope, positions.narrow(0, 9, 1)),
                    copy_of(d, 9, 1));
  const at::Tensor by_torch = packed.clone();
  PrepareQkBackwardByTorch(HeadsOf(by_torch, head_dim),
                           preparations.Of(has_norm, has_rope, positions), copy_of(d, 0, 40));
  const at::Tensor v = packed.narrow(1, 6 * head_dim, 2 * head_dim).clone();
  PrepareQkBackward(HeadsOf(packed, head_dim), preparations.Of(has_norm, has_rope, positions),
                    copy_of(d, 0, 40));
  const at::Tensor expected = packed64.grad().narrow(1, 0, 6 * head_dim);
  const double tolerance = kFloatTolerance * expected.abs().max().item<double>();
  CHECK(MaxDiff(packed.narrow(1, 0, 6 * head_dim), expected) < tolerance);
  CHECK(MaxDiff(by_torch.narrow(1, 0, 6 * head_dim), expected) < tolerance);
  CHECK(at::equal(packed.narrow(1, 6 * head_dim, 2 * head_dim), v));
  CHECK(at::equal(alone, packed.narrow(0, 9, 1)));
}

}  // namespace lathe::worker
