// Compares the preparation of queries, keys and values for pages, on emulated threads, with the
// CPU's norm and rope of heads.
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/kernels/emulation/test_rows.h"

namespace lathe::worker {
namespace {

using emulation::Bf16;
using emulation::Contents;
using emulation::DeviceBuffer;
using emulation::Floats;
using emulation::Random;
using emulation::TestRows;

constexpr float kHeadEps = 1e-6f;
constexpr int64_t kPageTokens = 4;
constexpr int64_t kPagePositions = 9;

struct Options {
  PagedShape shape;
  std::vector<int32_t> slots;  // of each row
  int64_t num_pages = 0;
  bool has_norm = true;
  bool has_rope = true;
  int64_t gap = 0;
};

struct Numbers {
  Floats q;
  Floats keys;    // as they lie in pages
  Floats values;  // same
  size_t num_unwritten_bytes = 0;
};

int64_t NumRows(const Options& options) { return static_cast<int64_t>(options.slots.size()); }

// Queries, keys and values of a row are neighbours.
int64_t WidthOf(const PagedShape& shape) {
  return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
}

std::vector<int64_t> PositionsOf(const Options& options) {
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < NumRows(options); ++row)
    positions.push_back((row * 5) % kPagePositions);
  return positions;
}

struct Inputs {
  Floats rows;
  Floats q_weight;
  Floats k_weight;
  Floats cos;
  Floats sin;
};

template <typename T>
Inputs InputsOf(const Options& options) {
  const int64_t head_dim = options.shape.head_dim;
  return {Random<T>(NumRows(options) * WidthOf(options.shape), 1), Random(head_dim, 2),
          Random(head_dim, 3), Random(kPagePositions * head_dim / 2, 4),
          Random(kPagePositions * head_dim / 2, 5)};
}

Floats FloatsOf(const DeviceBuffer<uint16_t>& numbers) {
  Floats floats;
  for (const uint16_t bits : numbers.numbers()) floats.push_back(__bfloat162float(Bf16{bits}));
  return floats;
}

template <typename T>
Numbers OnDevice(const Options& options, const Inputs& inputs) {
  const auto& [num_heads, num_kv_heads, head_dim, page_tokens, window] = options.shape;
  TestRows<T> rows("rows", {NumRows(options), WidthOf(options.shape), options.gap}, inputs.rows);
  const DeviceBuffer<float> q_weight("q_weight", inputs.q_weight, Contents::kConstants);
  const DeviceBuffer<float> k_weight("k_weight", inputs.k_weight, Contents::kConstants);
  const DeviceBuffer<float> cos("cos", inputs.cos, Contents::kConstants);
  const DeviceBuffer<float> sin("sin", inputs.sin, Contents::kConstants);
  const DeviceBuffer<int64_t> positions("positions", PositionsOf(options), Contents::kConstants);
  const DeviceBuffer<int32_t> slots("slots", options.slots, Contents::kConstants);
  const auto pages_size =
      static_cast<size_t>(options.num_pages * num_kv_heads * page_tokens * head_dim);
  DeviceBuffer<uint16_t> q("q", static_cast<size_t>(NumRows(options) * num_heads * head_dim));
  DeviceBuffer<uint16_t> keys("keys", pages_size);
  DeviceBuffer<uint16_t> values("values", pages_size);
  const T* first = rows.data();
  PrepareAndWrite({.shape = options.shape,
                   .num_rows = NumRows(options),
                   .q = first,
                   .k = first + num_heads * head_dim,
                   .v = first + (num_heads + num_kv_heads) * head_dim,
                   .is_bf16 = std::is_same_v<T, Bf16>,
                   .row_stride = rows.layout().stride(),
                   .q_weight = options.has_norm ? q_weight.data() : nullptr,
                   .k_weight = options.has_norm ? k_weight.data() : nullptr,
                   .eps = kHeadEps,
                   .cos = options.has_rope ? cos.data() : nullptr,
                   .sin = options.has_rope ? sin.data() : nullptr,
                   .positions = options.has_rope ? positions.data() : nullptr,
                   .slots = slots.data(),
                   .out_q = q.data(),
                   .keys = keys.data(),
                   .values = values.data()},
                  nullptr);
  CHECK(q.num_unwritten_bytes() == 0);
  CHECK(keys.num_unwritten_bytes() == values.num_unwritten_bytes());
  return {FloatsOf(q), FloatsOf(keys), FloatsOf(values), keys.num_unwritten_bytes()};
}

// Returns a row's heads from `first` on after the CPU's norm and rope.
Floats Prepared(const Options& options, const Inputs& inputs, int64_t first, int64_t num_heads,
                const Floats* weight, bool has_rope) {
  const int64_t head_dim = options.shape.head_dim;
  const std::vector<int64_t> positions = PositionsOf(options);
  Floats y(NumRows(options) * num_heads * head_dim);
  PrepareHeadsRows(
      {inputs.rows.data() + first * head_dim, WidthOf(options.shape),
       weight != nullptr ? weight->data() : nullptr, has_rope ? inputs.cos.data() : nullptr,
       inputs.sin.data(), positions.data(), y.data(), num_heads, head_dim, kHeadEps},
      0, NumRows(options));
  return y;
}

// Returns the rows of heads that lie in pages.
Floats FromPages(const Options& options, const Floats& pages) {
  const auto& [num_heads, num_kv_heads, head_dim, page_tokens, window] = options.shape;
  Floats rows;
  for (const int32_t slot : options.slots) {
    for (int64_t head = 0; head < num_kv_heads; ++head) {
      const int64_t place =
          (slot / page_tokens * num_kv_heads + head) * page_tokens + slot % page_tokens;
      const auto first = pages.begin() + place * head_dim;
      rows.insert(rows.end(), first, first + head_dim);
    }
  }
  return rows;
}

template <typename T>
void CheckPrepareAndWrite(const Options& options) {
  const Inputs inputs = InputsOf<T>(options);
  const Numbers device = OnDevice<T>(options, inputs);
  const PagedShape& shape = options.shape;
  const int64_t free_slots = options.num_pages * shape.page_tokens - NumRows(options);
  CHECK(device.num_unwritten_bytes ==
        static_cast<size_t>(free_slots * shape.num_kv_heads * shape.head_dim) * sizeof(uint16_t));
  const Floats q = Prepared(options, inputs, 0, shape.num_heads,
                            options.has_norm ? &inputs.q_weight : nullptr, options.has_rope);
  const Floats keys = Prepared(options, inputs, shape.num_heads, shape.num_kv_heads,
                               options.has_norm ? &inputs.k_weight : nullptr, options.has_rope);
  const Floats values = Prepared(options, inputs, shape.num_heads + shape.num_kv_heads,
                                 shape.num_kv_heads, nullptr, /*has_rope=*/false);
  emulation::CheckClose<Bf16>(device.q, q);
  emulation::CheckClose<Bf16>(FromPages(options, device.keys), keys);
  emulation::CheckClose<Bf16>(FromPages(options, device.values), values);
}

}  // namespace

TEST_CASE("GPU kernels, emulated: heads are prepared as on a CPU and go to their pages",
          "[kernels]") {
  const auto [num_heads, num_kv_heads] =
      GENERATE(table<int64_t, int64_t>({{1, 1}, {4, 2}, {9, 3}}));
  Options options = {.shape = {.num_heads = num_heads,
                               .num_kv_heads = num_kv_heads,
                               .head_dim = GENERATE(64, 128, 256),
                               .page_tokens = kPageTokens},
                     .slots = {17, 2, 0, 11, 16, 5},
                     .num_pages = 5};
  options.has_norm = GENERATE(true, false);
  options.has_rope = GENERATE(true, false);
  options.gap = GENERATE(0, 3);
  const uint64_t seed = GENERATE(1, 2);
  CAPTURE(num_heads, options.shape.head_dim, options.has_norm, options.has_rope, options.gap, seed);
  emulation::SetSeed(seed);
  CheckPrepareAndWrite<float>(options);
  CheckPrepareAndWrite<Bf16>(options);
}

TEST_CASE("GPU kernels, emulated: more rows than a grid has are prepared by several launches",
          "[kernels]") {
  constexpr int64_t kManyRows = 65535 + 3;
  Options options = {
      .shape = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64, .page_tokens = kPageTokens},
      .slots = std::vector<int32_t>(kManyRows),
      .num_pages = kManyRows / kPageTokens + 1,
      .has_norm = false};
  std::iota(options.slots.rbegin(), options.slots.rend(), 0);
  CheckPrepareAndWrite<Bf16>(options);
}

}  // namespace lathe::worker
