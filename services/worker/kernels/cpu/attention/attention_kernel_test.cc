#include "services/worker/kernels/cpu/attention/attention_kernel.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "services/worker/kernels/cpu/attention/attention_variants.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"

namespace lathe::worker {
namespace {

using attention::Variant;
using attention::VariantsOfThisCpu;
using Doubles = std::vector<double>;
using Numbers32 = std::vector<float>;

// Relative to the largest number: sums have some hundred terms of fp32.
constexpr double kKernelTolerance = 3e-6;

Numbers32 NormalNumbers(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Numbers32 numbers(static_cast<size_t>(size));
  for (float& number : numbers) number = normal(random);
  return numbers;
}

void CheckNear(const Numbers32& actual, const Doubles& expected,
               double tolerance = kKernelTolerance) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(actual[i] - expected[i]);
    if (!(error <= difference)) difference = error;  // keeps a NaN, unlike std::max
  }
  CHECK(difference <= tolerance * largest);
}

// One sequence with one KV head, and its results by the kernels.
struct AttentionCase {
  AttentionQueries Queries(int64_t begin, int64_t end) {
    const auto rows = [&](Numbers32& x, int64_t width) {
      return HeadRows{x.data() + begin * group * width, group * width, width};
    };
    return {rows(q, d), rows(out, d), rows(log_sums, 1), begin, end - begin, group, d,
            scale,      window};
  }

  void Forward(const Variant& variant, int64_t begin, int64_t end) {
    Numbers32 scratch(AttentionScratchSize((end - begin) * group, d));
    variant.attend_rows(Queries(begin, end), {k.data(), v.data(), d, d}, scratch.data());
  }

  void Backward(const Variant& variant, const AttentionBackwardPart& part) {
    for (size_t i = 0; i < deltas.size(); ++i) {
      deltas[i] = AttentionDelta(&out[i * d], &dout[i * d], d);
    }
    const auto heads = [&](Numbers32& x, int64_t width) {
      return HeadRows{x.data(), group * width, width};
    };
    const auto keys = [&](Numbers32& x) { return HeadRows{x.data(), d, d}; };
    Numbers32 scratch(AttentionBackwardScratchSize(n * group, d));
    variant.backward_part(
        {heads(q, d), keys(k), keys(v), heads(dout, d), heads(log_sums, 1), heads(deltas, 1),
         heads(dq, d), keys(dk), keys(dv), n, group, d, scale, window},
        part, scratch.data());
  }

  int64_t n;
  int64_t group;
  int64_t d;
  int64_t window = 0;
  float scale = 1 / std::sqrt(static_cast<float>(d));
  Numbers32 q = NormalNumbers(n * group * d, 1);
  Numbers32 k = NormalNumbers(n * d, 2);
  Numbers32 v = NormalNumbers(n * d, 3);
  Numbers32 dout = NormalNumbers(n * group * d, 4);
  Numbers32 out = Numbers32(q.size());
  Numbers32 log_sums = Numbers32(n * group);
  Numbers32 deltas = Numbers32(n * group);
  Numbers32 dq = Numbers32(q.size());
  Numbers32 dk = Numbers32(k.size());
  Numbers32 dv = Numbers32(v.size());
};

// The definition of attention and its gradients in fp64.
struct AttentionDefinition {
  explicit AttentionDefinition(const AttentionCase& of)
      : out(of.q.size()), dq(of.q.size()), dk(of.k.size()), dv(of.k.size()) {
    for (int64_t row = 0; row < of.n * of.group; ++row) AddRow(of, row);
  }

  void AddRow(const AttentionCase& of, int64_t row) {
    const int64_t d = of.d;
    const auto dot = [&](const Numbers32& x, const Numbers32& keys, int64_t key) {
      double sum = 0;
      for (int64_t i = 0; i < d; ++i) sum += double{x[row * d + i]} * keys[key * d + i];
      return sum;
    };
    Doubles p(row / of.group + 1);
    const auto num_keys = static_cast<int64_t>(p.size());
    const int64_t first = of.window == 0 ? 0 : std::max<int64_t>(0, num_keys - of.window);
    double sum = 0;
    double delta = 0;
    for (int64_t key = first; key < num_keys; ++key) {
      p[key] = std::exp(of.scale * dot(of.q, of.k, key));
      sum += p[key];
    }
    for (int64_t key = first; key < num_keys; ++key) {
      p[key] /= sum;
      delta += p[key] * dot(of.dout, of.v, key);
    }
    for (int64_t key = first; key < num_keys; ++key) {
      const double dscore = of.scale * p[key] * (dot(of.dout, of.v, key) - delta);
      for (int64_t i = 0; i < d; ++i) {
        out[row * d + i] += p[key] * of.v[key * d + i];
        dq[row * d + i] += dscore * of.k[key * d + i];
        dk[key * d + i] += dscore * of.q[row * d + i];
        dv[key * d + i] += p[key] * of.dout[row * d + i];
      }
    }
  }

  Doubles out;
  Doubles dq;
  Doubles dk;
  Doubles dv;
};

TEST_CASE("AttendRows: elements of two numbers equal the definition, and parts the whole",
          "[kernels][attention]") {
  using Gradients = AttentionBackwardPart::Gradients;
  constexpr double kBf16Tolerance = 4e-3;  // rounds weights and score gradients, see attention_test
  const int64_t group = GENERATE(1, 3);
  const int64_t window = GENERATE(0, 2, 33, 64, 75);
  CAPTURE(group, window);
  AttentionCase whole{151, group, 24, window};
  for (Numbers32* numbers : {&whole.q, &whole.k, &whole.v, &whole.dout}) {
    for (float& number : *numbers) {
      uint32_t bits;
      std::memcpy(&bits, &number, sizeof(bits));
      bits &= 0xffff0000;  // bf16 numbers, so that nothing is rounded but factors made of them
      std::memcpy(&number, &bits, sizeof(bits));
    }
  }
  AttentionCase parts = whole;
  whole.Forward(attention::kPlainBf16, 0, 151);
  whole.Backward(attention::kPlainBf16, {Gradients::kAll, 0, 151});
  const AttentionDefinition definition(whole);
  CheckNear(whole.out, definition.out, kBf16Tolerance);
  CheckNear(whole.dq, definition.dq, kBf16Tolerance);
  CheckNear(whole.dk, definition.dk, kBf16Tolerance);
  CheckNear(whole.dv, definition.dv, kBf16Tolerance);
  for (const auto& [begin, end] : {std::pair(0, 1), {1, 70}, {70, 151}}) {
    parts.Forward(attention::kPlainBf16, begin, end);
  }
  CHECK(parts.out == whole.out);
  parts.Backward(attention::kPlainBf16, {Gradients::kKeys, 0, 64});
  parts.Backward(attention::kPlainBf16, {Gradients::kKeys, 64, 151});
  parts.Backward(attention::kPlainBf16, {Gradients::kQueries, 0, 101});
  parts.Backward(attention::kPlainBf16, {Gradients::kQueries, 101, 151});
  CHECK(parts.dq == whole.dq);
  CHECK(parts.dk == whole.dk);
  CHECK(parts.dv == whole.dv);
}

TEST_CASE("AttendRows: every instruction set equals the definition, forward and backward",
          "[kernels][attention]") {
  // Whole and partial vectors, tiles, blocks of keys and chunks of rows.
  const auto [n, group, d] = GENERATE(std::tuple<int64_t, int64_t, int64_t>{2, 1, 16},
                                      std::tuple<int64_t, int64_t, int64_t>{67, 3, 20},
                                      std::tuple<int64_t, int64_t, int64_t>{130, 1, 31},
                                      std::tuple<int64_t, int64_t, int64_t>{150, 2, 128},
                                      std::tuple<int64_t, int64_t, int64_t>{140, 3, 256});
  const int64_t window = GENERATE(0, 2, 8, 63, 64, 100, 1000);
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name, n, group, d, window);
    AttentionCase kernel{n, group, d, window};
    kernel.Forward(*variant, 0, n);
    kernel.Backward(*variant, {AttentionBackwardPart::Gradients::kAll, 0, n});
    const AttentionDefinition definition(kernel);
    CheckNear(kernel.out, definition.out);
    CheckNear(kernel.dq, definition.dq);
    CheckNear(kernel.dk, definition.dk);
    CheckNear(kernel.dv, definition.dv);
  }
}

TEST_CASE("AttendRows: parts have the bits of the whole for every instruction set",
          "[kernels][attention]") {
  using Gradients = AttentionBackwardPart::Gradients;
  const int64_t window = GENERATE(0, 5, 70);
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name, window);
    AttentionCase whole{150, 3, 32, window};
    whole.Forward(*variant, 0, 150);
    whole.Backward(*variant, {Gradients::kAll, 0, 150});
    AttentionCase parts{150, 3, 32, window};
    for (const auto& [begin, end] : {std::pair(0, 1), {1, 70}, {70, 150}}) {
      parts.Forward(*variant, begin, end);
    }
    CHECK(parts.out == whole.out);
    CHECK(parts.log_sums == whole.log_sums);
    parts.Backward(*variant, {Gradients::kKeys, 0, 64});
    parts.Backward(*variant, {Gradients::kKeys, 64, 150});
    parts.Backward(*variant, {Gradients::kQueries, 0, 101});
    parts.Backward(*variant, {Gradients::kQueries, 101, 150});
    CHECK(parts.dq == whole.dq);
    CHECK(parts.dk == whole.dk);
    CHECK(parts.dv == whole.dv);
  }
}

TEST_CASE("AttendMembers: blocks of the cache give the bits of rows for every instruction set",
          "[kernels][attention]") {
  const int64_t d = GENERATE(20, 32);
  const int64_t window = GENERATE(0, 5, 40, 90);
  constexpr int64_t kBlocks = 7;
  const int32_t blocks[kBlocks] = {4, 0, 6, 2, 5, 1, 3};
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name, d, window);
    AttentionCase rows{100, 2, d, window};
    rows.Forward(*variant, 0, 100);
    AttentionCase cached{100, 2, d, window};
    const int64_t block_size = kKvBlockTokens * d;
    Numbers32 keys(kBlocks * block_size);
    Numbers32 values(kBlocks * block_size);
    for (int64_t t = 0; t < 100; ++t) {
      const int64_t at = blocks[t / kKvBlockTokens] * block_size;
      StoreToken(&rows.k[t * d], &rows.v[t * d], d, t % kKvBlockTokens, &keys[at], &values[at]);
    }
    // Both members are of one sequence: the second continues the first, and both see the prefix.
    const KeyBlocks<float> source = {keys.data(), values.data(), blocks, block_size};
    const std::vector<AttentionMember<float>> members = {{cached.Queries(64, 90), source},
                                                         {cached.Queries(90, 100), source}};
    Numbers32 scratch(AttentionScratchSize(36 * 2, d));
    variant->attend_members(members, /*num_shared=*/64, scratch.data());
    const auto first = static_cast<ptrdiff_t>(64 * 2 * d);
    CHECK(std::equal(rows.out.begin() + first, rows.out.end(), cached.out.begin() + first));
  }
}

}  // namespace
}  // namespace lathe::worker
