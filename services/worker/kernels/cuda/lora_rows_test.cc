// Compares LoRA's products for GPUs, on emulated threads, with sums in doubles, and the steps that
// the second product takes along with launches of their own.
#include "services/worker/kernels/cuda/lora_rows.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cuda/row_kernels.h"
#include "services/worker/kernels/emulation/test_rows.h"

namespace lathe::worker {
namespace {

using emulation::Bf16;
using emulation::CheckClose;
using emulation::Contents;
using emulation::DeviceBuffer;
using emulation::Floats;
using emulation::Random;
using emulation::TestRows;

// One adapter's linear. Rank 0: the adapter does not have it.
struct Factors {
  int64_t rank = 0;
  float scaling = 0;
  Floats a;    // [rank, in_features]
  Floats b_t;  // [rank, out_features]
};

struct Shape {
  int64_t in_features;
  std::vector<int64_t> out_features;  // of each part
  std::vector<int32_t> row_slots;
  std::vector<int64_t> ranks = {8, 0, 1, 5};  // by slot; each part's are rotated by one

  int64_t MostRank() const { return std::ranges::max(ranks); }
};

// Addends of the outputs, besides the products.
enum class Addends { kNone, kAddedByHost, kAddedByKernel };

// A set of adapters and rows, in the memory of the host and of the device.
template <typename X, typename Y>
class LoraCase {
 public:
  explicit LoraCase(const Shape& shape, int64_t gap, Addends addends = Addends::kNone)
      : shape_(shape),
        addends_(addends),
        num_rows_(static_cast<int64_t>(shape.row_slots.size())),
        x_(Random<X>(num_rows_ * shape.in_features, 1)),
        device_x_("x", {num_rows_, shape.in_features, gap}, x_),
        row_slots_("row_slots", shape.row_slots, Contents::kConstants),
        products_("products",
                  shape.row_slots.size() * shape.out_features.size() * shape_.MostRank()) {
    for (size_t part = 0; part < shape.out_features.size(); ++part) AddPart(part, gap);
    MoveEntries();
  }

  void Run() { AddLoraRowsOnDevice(Task(), nullptr); }

  // Returns activation(part 0) * part 1, by the launches of Run.
  Floats RunGated(Activation activation) {
    TestRows<Y> activated("activated", {num_rows_, shape_.out_features[0], /*gap=*/1});
    LoraRowsTask task = Task();
    task.activated = activated.data();
    task.activated_stride = activated.layout().stride();
    task.activation = activation;
    AddLoraRowsOnDevice(task, nullptr);
    CHECK(activated.IsWritten());
    return activated.numbers();
  }

  // Returns the same by another launch.
  Floats Activate(Activation activation) {
    TestRows<Y> activated("activated", {num_rows_, shape_.out_features[0]});
    GatedActivationOnDevice({.activation = activation,
                             .gate = RowsOf(*device_y_[0]),
                             .up = RowsOf(*device_y_[1]),
                             .y = RowsOf(activated),
                             .num_rows = num_rows_,
                             .width = shape_.out_features[0]},
                            nullptr);
    return activated.numbers();
  }

  int64_t num_parts() const { return static_cast<int64_t>(shape_.out_features.size()); }
  Floats first(int64_t part) const { return y_[part]; }
  Floats result(int64_t part) const { return device_y_[part]->numbers(); }

  Floats Expected(int64_t part) const {
    Floats y = y_[part];
    const int64_t width = shape_.out_features[part];
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (shape_.row_slots[row] < 0) continue;
      const Factors& factors = factors_[part][shape_.row_slots[row]];
      std::vector<double> products;
      for (int64_t factor = 0; factor < factors.rank; ++factor) {
        products.push_back(Product(row, factors, factor));
      }
      for (int64_t output = 0; output < width; ++output) {
        double sum = y[row * width + output];
        for (int64_t factor = 0; factor < factors.rank; ++factor) {
          sum += products[factor] * factors.b_t[factor * width + output];
        }
        y[row * width + output] = static_cast<float>(sum);
      }
    }
    return y;
  }

 private:
  static DeviceRows RowsOf(TestRows<Y>& rows) {
    return {rows.data(), rows.layout().stride(), std::is_same_v<Y, Bf16>};
  }

  LoraRowsTask Task() {
    LoraRowsTask task = {.x = device_x_.data(),
                         .x_is_bf16 = std::is_same_v<X, Bf16>,
                         .y_is_bf16 = std::is_same_v<Y, Bf16>,
                         .x_stride = device_x_.layout().stride(),
                         .in_features = shape_.in_features,
                         .num_rows = num_rows_,
                         .row_slots = row_slots_.data(),
                         .slot_stride = num_parts(),
                         .num_parts = static_cast<int>(num_parts()),
                         .most_rank = shape_.MostRank(),
                         .products = products_.data()};
    for (int64_t i = 0; i < num_parts(); ++i) {
      LoraRowsPart& part = task.parts[i];
      part = {.y = device_y_[i]->data(),
              .y_stride = device_y_[i]->layout().stride(),
              .out_features = shape_.out_features[i],
              .entries = entries_->data() + i};
      if (addends_ != Addends::kAddedByKernel) continue;
      part.residual = device_residuals_[i]->data();
      part.residual_stride = device_residuals_[i]->layout().stride();
      part.bias = device_biases_[i]->data();
    }
    return task;
  }

  double Product(int64_t row, const Factors& factors, int64_t factor) const {
    const int64_t width = shape_.in_features;
    double product = 0;
    for (int64_t i = 0; i < width; ++i) {
      product += double{x_[row * width + i]} * factors.a[factor * width + i];
    }
    return product * factors.scaling;
  }

  void AddPart(size_t part, int64_t gap) {
    const int64_t outputs = shape_.out_features[part];
    y_.push_back(Random<Y>(num_rows_ * outputs, 2 + part));
    if (addends_ != Addends::kNone) AddAddends(part, gap);
    device_y_.push_back(std::make_unique<TestRows<Y>>(
        "y", emulation::RowLayout{num_rows_, outputs, gap}, y_.back(), Contents::kNumbers));
    std::vector<Factors> all;
    for (size_t slot = 0; slot < shape_.ranks.size(); ++slot) {
      const int64_t rank = shape_.ranks[(slot + part) % shape_.ranks.size()];
      all.push_back({.rank = rank,
                     .scaling = 0.5f + static_cast<float>(slot),
                     .a = Random(rank * shape_.in_features, 10 + slot),
                     .b_t = Random(rank * outputs, 20 + slot)});
    }
    factors_.push_back(std::move(all));
  }

  // The host rounds after each step.
  void AddAddends(size_t part, int64_t gap) {
    const int64_t outputs = shape_.out_features[part];
    const Floats residual = Random(num_rows_ * outputs, 30 + part);
    const Floats bias = Random(outputs, 40 + part);
    device_residuals_.push_back(std::make_unique<TestRows<float>>(
        "residual", emulation::RowLayout{num_rows_, outputs, 2 * gap}, residual));
    device_biases_.push_back(
        std::make_unique<TestRows<float>>("bias", emulation::RowLayout{1, outputs}, bias));
    if (addends_ != Addends::kAddedByHost) return;
    const auto rounded = [](float x) { return emulation::ToFloat(emulation::Rounded<Y>(x)); };
    for (size_t i = 0; i < residual.size(); ++i) {
      y_.back()[i] = rounded(rounded(y_.back()[i] + residual[i]) + bias[i % bias.size()]);
    }
  }

  // The entries of a slot are neighbours. The factors of odd slots begin anywhere.
  void MoveEntries() {
    std::vector<LoraSlotEntry> entries;
    for (size_t slot = 0; slot < shape_.ranks.size(); ++slot) {
      for (const std::vector<Factors>& part : factors_) {
        const Factors& factors = part[slot];
        const auto offset = static_cast<int64_t>(slot % 2);
        const auto move = [&](const char* name, const Floats& numbers) -> const float* {
          if (numbers.empty()) return nullptr;
          const emulation::RowLayout layout = {1, static_cast<int64_t>(numbers.size()), 0, offset};
          device_factors_.push_back(std::make_unique<TestRows<float>>(name, layout, numbers));
          return device_factors_.back()->data();
        };
        entries.push_back(
            {move("A", factors.a), move("B", factors.b_t), factors.rank, factors.scaling});
      }
    }
    entries_.emplace("entries", entries, Contents::kConstants);
  }

  const Shape shape_;
  const Addends addends_;
  const int64_t num_rows_;
  const Floats x_;
  std::vector<Floats> y_;                      // by part
  std::vector<std::vector<Factors>> factors_;  // by part and slot
  TestRows<X> device_x_;
  DeviceBuffer<int32_t> row_slots_;
  DeviceBuffer<float> products_;
  std::vector<std::unique_ptr<TestRows<Y>>> device_y_;
  std::vector<std::unique_ptr<TestRows<float>>> device_residuals_;  // by part
  std::vector<std::unique_ptr<TestRows<float>>> device_biases_;     // by part
  std::vector<std::unique_ptr<TestRows<float>>> device_factors_;
  std::optional<DeviceBuffer<LoraSlotEntry>> entries_;
};

template <typename X, typename Y>
void CheckLora(const Shape& shape, int64_t gap) {
  LoraCase<X, Y> lora(shape, gap);
  lora.Run();
  for (int64_t part = 0; part < lora.num_parts(); ++part) {
    CAPTURE(part);
    CheckClose<Y>(lora.result(part), lora.Expected(part));
  }
}

template <typename X, typename Y>
void CheckAddends(const Shape& shape, int64_t gap) {
  LoraCase<X, Y> together(shape, gap, Addends::kAddedByKernel);
  LoraCase<X, Y> apart(shape, gap, Addends::kAddedByHost);
  together.Run();
  apart.Run();
  for (int64_t part = 0; part < apart.num_parts(); ++part) {
    CAPTURE(part);
    CHECK(together.result(part) == apart.result(part));
  }
}

template <typename X, typename Y>
void CheckGated(const Shape& shape, int64_t gap, Activation activation, bool has_addends) {
  LoraCase<X, Y> together(shape, gap, has_addends ? Addends::kAddedByKernel : Addends::kNone);
  LoraCase<X, Y> apart(shape, gap, has_addends ? Addends::kAddedByHost : Addends::kNone);
  const Floats activated = together.RunGated(activation);
  apart.Run();
  CHECK(activated == apart.Activate(activation));
  for (int64_t part = 0; part < together.num_parts(); ++part) {
    CHECK(together.result(part) == together.first(part));  // no part is written
  }
}

Floats FirstPart(const Shape& shape, Addends addends) {
  LoraCase<float, float> lora(shape, 0, addends);
  lora.Run();
  return lora.result(0);
}

Floats GatedParts(const Shape& shape) {
  const Shape gated = {shape.in_features, {300, 300}, shape.row_slots};
  return LoraCase<float, float>(gated, 0).RunGated(Activation::kSilu);
}

// One row, some rows, and tiles: of one adapter, of several, without adapters and with a rest.
std::vector<int32_t> TestSlots() {
  return GENERATE(values<std::vector<int32_t>>(
      {{0}, {3, -1, 1, 2, 0}, {0, 0, 0, 0, 3, 3, 3, 3}, {2, 2, 3, 2, -1, -1, -1, -1, 1, 0, 0}}));
}

}  // namespace

TEST_CASE("GPU kernels, emulated: LoRA's products of rows with an adapter each", "[kernels]") {
  const int64_t in_features = GENERATE(1, 64, 130, 1100);
  const auto out_features = GENERATE(values<std::vector<int64_t>>({{33}, {64, 1, 257}}));
  const auto row_slots = TestSlots();
  const auto [gap, seed] = GENERATE(table<int64_t, uint64_t>({{0, 1}, {3, 2}}));
  CAPTURE(in_features, out_features, row_slots, gap, seed);
  emulation::SetSeed(seed);
  const Shape shape = {in_features, out_features, row_slots};
  CheckLora<float, float>(shape, gap);
  CheckLora<Bf16, Bf16>(shape, gap);
}

TEST_CASE("GPU kernels, emulated: LoRA of ranks around a block's factors, up to the largest",
          "[kernels]") {
  const auto row_slots = TestSlots();
  CAPTURE(row_slots);
  const Shape shape = {.in_features = 64,
                       .out_features = {33, 33},
                       .row_slots = row_slots,
                       .ranks = {128, 129, 512, 0}};
  CheckAddends<Bf16, Bf16>(shape, 0);
  CheckGated<float, float>(shape, 0, Activation::kSilu, true);
}

TEST_CASE("GPU kernels, emulated: residual and bias beside LoRA have the bits of steps before it",
          "[kernels]") {
  const auto out_features = GENERATE(values<std::vector<int64_t>>({{33}, {64, 1, 257}}));
  const auto row_slots = TestSlots();
  const auto [gap, seed] = GENERATE(table<int64_t, uint64_t>({{0, 1}, {3, 2}}));
  CAPTURE(out_features, row_slots, gap, seed);
  emulation::SetSeed(seed);
  const Shape shape = {130, out_features, row_slots};
  CheckAddends<float, float>(shape, gap);
  CheckAddends<Bf16, float>(shape, gap);
  CheckAddends<Bf16, Bf16>(shape, gap);
}

TEST_CASE("GPU kernels, emulated: the activation after LoRA has the bits of a launch of its own",
          "[kernels]") {
  const int64_t width = GENERATE(33, 300);
  const auto activation = GENERATE(Activation::kSilu, Activation::kGeluTanh);
  const auto row_slots = TestSlots();
  const auto [gap, seed, has_addends] =
      GENERATE(table<int64_t, uint64_t, bool>({{0, 1, true}, {3, 2, false}}));
  CAPTURE(width, static_cast<int>(activation), row_slots, gap, seed, has_addends);
  emulation::SetSeed(seed);
  const Shape shape = {64, {width, width}, row_slots};
  CheckGated<float, float>(shape, gap, activation, has_addends);
  CheckGated<Bf16, Bf16>(shape, gap, activation, has_addends);
}

TEST_CASE("GPU kernels, emulated: a row's LoRA has the same bits beside other rows", "[kernels]") {
  const Shape tiles = {130, {300}, {0, 0, 0, 0, 0, 0, 0, 0, 0}};
  const Shape mixed = {130, {300}, {0, 3, 2, 0, -1, 0, 3, 3, 0}};
  const Shape alone = {130, {300}, {0}};
  const auto addends = GENERATE(Addends::kNone, Addends::kAddedByKernel);
  const Floats expected = FirstPart(alone, addends);
  const Floats expected_gated = GatedParts(alone);
  for (const Shape& shape : {tiles, mixed}) {
    const Floats all = FirstPart(shape, addends);
    CHECK(Floats(all.begin(), all.begin() + 300) == expected);
    const Floats gated = GatedParts(shape);
    CHECK(Floats(gated.begin(), gated.begin() + 300) == expected_gated);
  }
}

}  // namespace lathe::worker
