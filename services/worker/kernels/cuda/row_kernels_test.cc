// Compares the row-wise kernels for GPUs, on emulated threads, with those for CPUs.
#include "services/worker/kernels/cuda/row_kernels.h"

#include <catch2/catch.hpp>

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/kernels/emulation/test_rows.h"

namespace lathe::worker {
namespace {

using emulation::Bf16;
using emulation::CheckClose;
using emulation::Contents;
using emulation::Floats;
using emulation::Random;
using emulation::RowLayout;
using emulation::TestRows;

constexpr float kEps = 1e-6f;
constexpr int64_t kRows = 5;

template <typename T>
DeviceRows RowsOf(TestRows<T>& rows) {
  return {rows.data(), rows.layout().stride(), std::is_same_v<T, Bf16>};
}

// Draws the order of threads.
void Shuffle() {
  const uint64_t seed = GENERATE(1, 2);
  UNSCOPED_INFO("seed " << seed);
  emulation::SetSeed(seed);
}

// Gaps and offsets, in numbers: a row that is aligned for vectors, and some that are not.
RowLayout TestLayout(int64_t num_rows, int64_t width) {
  const auto [gap, offset] = GENERATE(table<int64_t, int64_t>({{0, 0}, {8, 0}, {3, 0}, {4, 1}}));
  return {num_rows, width, gap, offset};
}

template <typename Y>
void CheckRmsNorm(const RowLayout& layout, bool has_residual) {
  const int64_t width = layout.width;
  const Floats x = Random(kRows * width, 1);
  const Floats weight = Random(width, 2);
  const Floats residual = Random(kRows * width, 3);
  TestRows<float> device_residual("residual", layout, residual);
  TestRows<float> device_x("x", layout, x);
  TestRows<float> device_weight("weight", {1, width}, weight);
  TestRows<Y> device_y("y", layout);
  RmsNormOnDevice({.x = RowsOf(device_x),
                   .weight = device_weight.data(),
                   .residual = has_residual ? RowsOf(device_residual) : DeviceRows{},
                   .y = RowsOf(device_y),
                   .num_rows = kRows,
                   .width = width,
                   .eps = kEps},
                  nullptr);
  Floats y(x.size());
  RmsNormRows({x.data(), width, weight.data(), y.data(), width, kEps}, 0, kRows);
  for (size_t i = 0; i < y.size() && has_residual; ++i) y[i] += residual[i];
  CHECK(device_y.IsWritten());
  CheckClose<Y>(device_y.numbers(), y);
}

struct Activations {
  Floats gate;
  Floats up;
  Floats dy;
};

template <typename T>
void CheckGatedActivation(Activation activation, const RowLayout& layout) {
  const int64_t width = layout.width;
  // Up to 9: far from zero, where the slope is flat.
  Activations a = {Random<T>(kRows * width, 1), Random<T>(kRows * width, 2),
                   Random<T>(kRows * width, 3)};
  for (float& number : a.gate) number = emulation::ToFloat(emulation::Rounded<T>(9 * number));
  TestRows<T> gate("gate", layout, a.gate, Contents::kNumbers);
  TestRows<T> up("up", layout, a.up, Contents::kNumbers);
  TestRows<T> y("y", layout);
  TestRows<T> dy("dy", layout, a.dy);
  GatedActivationDeviceTask task = {.activation = activation,
                                    .gate = RowsOf(gate),
                                    .up = RowsOf(up),
                                    .y = RowsOf(y),
                                    .num_rows = kRows,
                                    .width = width};
  GatedActivationOnDevice(task, nullptr);
  Floats expected(a.gate.size());
  GatedActivationRows(
      {activation, a.gate.data(), a.up.data(), width, width, expected.data(), width}, 0, kRows);
  CHECK(y.IsWritten());
  CheckClose<T>(y.numbers(), expected);

  task.y = RowsOf(dy);
  GatedActivationBackwardOnDevice(task, nullptr);
  GatedActivationBackwardRows(
      {activation, a.gate.data(), a.up.data(), width, width, a.dy.data(), width, width}, 0, kRows);
  CheckClose<T>(gate.numbers(), a.gate);
  CheckClose<T>(up.numbers(), a.up);
}

struct Heads {
  int64_t head_dim;
  bool has_norm;
  bool has_rope;
};

constexpr int64_t kHeads = 3;  // with kRows, no multiple of the heads of a block
constexpr int64_t kPositions = 11;

template <typename T>
void CheckPrepareHeads(const Heads& heads, int64_t gap) {
  const auto& [head_dim, has_norm, has_rope] = heads;
  const int64_t width = kHeads * head_dim;
  Floats x = Random<T>(kRows * width, 1);
  Floats dy = Random<T>(kRows * width, 2);
  const Floats weight = Random(head_dim, 3);
  const Floats cos = Random(kPositions * head_dim / 2, 4);
  const Floats sin = Random(kPositions * head_dim / 2, 5);
  const std::vector<int64_t> positions = {0, 3, 10, 3, 7};
  TestRows<T> device_x("x", {kRows, width, gap}, x, Contents::kNumbers);
  TestRows<T> device_y("y", {kRows, width, 2 * gap});
  TestRows<T> device_dy("dy", {kRows, width, 2 * gap}, dy);
  TestRows<float> device_weight("weight", {1, head_dim}, weight);
  TestRows<float> device_cos("cos", {kPositions, head_dim / 2}, cos);
  TestRows<float> device_sin("sin", {kPositions, head_dim / 2}, sin);
  emulation::DeviceBuffer<int64_t> device_positions("positions", positions, Contents::kConstants);
  PrepareHeadsDeviceTask task = {.x = RowsOf(device_x),
                                 .weight = has_norm ? device_weight.data() : nullptr,
                                 .cos = has_rope ? device_cos.data() : nullptr,
                                 .sin = has_rope ? device_sin.data() : nullptr,
                                 .positions = has_rope ? device_positions.data() : nullptr,
                                 .y = RowsOf(device_y),
                                 .num_rows = kRows,
                                 .num_heads = kHeads,
                                 .head_dim = head_dim,
                                 .eps = kEps};
  const float* own_weight = has_norm ? weight.data() : nullptr;
  const float* own_cos = has_rope ? cos.data() : nullptr;
  PrepareHeadsOnDevice(task, nullptr);
  Floats y(x.size());
  PrepareHeadsRows({x.data(), width, own_weight, own_cos, sin.data(), positions.data(), y.data(),
                    kHeads, head_dim, kEps},
                   0, kRows);
  CHECK(device_y.IsWritten());
  CheckClose<T>(device_y.numbers(), y);

  task.y = RowsOf(device_dy);
  PrepareHeadsBackwardOnDevice(task, nullptr);
  PrepareHeadsBackwardRows({x.data(), width, own_weight, own_cos, sin.data(), positions.data(),
                            dy.data(), x.data(), width, kHeads, head_dim, kEps},
                           0, kRows);
  CheckClose<T>(device_x.numbers(), x);
}

}  // namespace

TEST_CASE("GPU kernels, emulated: RMS norm is the CPU's", "[kernels]") {
  const int64_t width = GENERATE(1, 32, 1023, 1024, 2308);
  const RowLayout layout = TestLayout(kRows, width);
  const bool is_bf16 = GENERATE(false, true);
  const bool has_residual = GENERATE(false, true);
  CAPTURE(width, layout.gap, layout.offset, is_bf16, has_residual);
  Shuffle();
  is_bf16 ? CheckRmsNorm<Bf16>(layout, has_residual) : CheckRmsNorm<float>(layout, has_residual);
}

TEST_CASE("GPU kernels, emulated: the gradient of RMS norm is the CPU's", "[kernels]") {
  const int64_t width = GENERATE(3, 32, 1023, 2308);
  const RowLayout layout = TestLayout(kRows, width);
  const bool has_residual = GENERATE(false, true);
  CAPTURE(width, layout.gap, layout.offset, has_residual);
  Shuffle();
  const Floats x = Random(kRows * width, 1);
  const Floats weight = Random(width, 2);
  const Floats dy = Random(kRows * width, 3);
  const Floats residual = Random(kRows * width, 4);
  TestRows<float> device_x("x", layout, x);
  TestRows<float> device_weight("weight", {1, width}, weight);
  TestRows<float> device_residual("residual", layout, residual);
  // dx may be dy.
  TestRows<float> device_dx("dx", layout, dy, Contents::kNumbers);
  RmsNormBackwardOnDevice({.x = RowsOf(device_x),
                           .weight = device_weight.data(),
                           .dy = RowsOf(device_dx),
                           .residual = has_residual ? RowsOf(device_residual) : DeviceRows{},
                           .dx = RowsOf(device_dx),
                           .num_rows = kRows,
                           .width = width,
                           .eps = kEps},
                          nullptr);
  Floats dx(x.size());
  RmsNormBackwardRows(
      {x.data(), width, weight.data(), dy.data(), width, has_residual ? residual.data() : nullptr,
       width, dx.data(), width, width, kEps},
      0, kRows);
  CheckClose<float>(device_dx.numbers(), dx);
}

TEST_CASE("GPU kernels, emulated: the MLP's activation and its gradient are the CPU's",
          "[kernels]") {
  const int64_t width = GENERATE(1, 96, 1030, 2052);
  const RowLayout layout = TestLayout(kRows, width);
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const bool is_bf16 = GENERATE(false, true);
  CAPTURE(width, layout.gap, layout.offset, static_cast<int>(activation), is_bf16);
  Shuffle();
  is_bf16 ? CheckGatedActivation<Bf16>(activation, layout)
          : CheckGatedActivation<float>(activation, layout);
}

TEST_CASE("GPU kernels, emulated: norm and rope of heads and their gradients are the CPU's",
          "[kernels]") {
  const Heads heads = {GENERATE(64, 128, 256), GENERATE(false, true), GENERATE(false, true)};
  const int64_t gap = GENERATE(0, 5);
  const bool is_bf16 = GENERATE(false, true);
  CAPTURE(heads.head_dim, heads.has_norm, heads.has_rope, gap, is_bf16);
  Shuffle();
  is_bf16 ? CheckPrepareHeads<Bf16>(heads, gap) : CheckPrepareHeads<float>(heads, gap);
}

TEST_CASE("GPU kernels, emulated: without rows nothing is launched", "[kernels]") {
  RmsNormOnDevice({.width = 64}, nullptr);
  RmsNormBackwardOnDevice({.width = 64}, nullptr);
  GatedActivationOnDevice({.width = 64}, nullptr);
  GatedActivationBackwardOnDevice({.width = 64}, nullptr);
  PrepareHeadsOnDevice({.num_heads = 2, .head_dim = 64}, nullptr);
  PrepareHeadsBackwardOnDevice({.num_heads = 2, .head_dim = 64}, nullptr);
  SUCCEED();
}

}  // namespace lathe::worker
