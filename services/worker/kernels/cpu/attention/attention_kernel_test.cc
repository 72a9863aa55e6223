#include "services/worker/kernels/cpu/attention/attention_kernel.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
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

void CheckNear(const Numbers32& actual, const Doubles& expected) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(actual[i] - expected[i]);
    if (!(error <= difference)) difference = error;  // keeps a NaN, unlike std::max
  }
  CHECK(difference <= kKernelTolerance * largest);
}

// One sequence with one KV head, and its results by the kernels.
struct AttentionCase {
  AttentionQueries Queries(int64_t begin, int64_t end) {
    const auto rows = [&](Numbers32& x, int64_t width) {
      return HeadRows{x.data() + begin * group * width, group * width, width};
    };
    return {rows(q, d), rows(out, d), rows(log_sums, 1), begin, end - begin, group, d, scale};
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
    variant.backward_part({heads(q, d), keys(k), keys(v), heads(dout, d), heads(log_sums, 1),
                           heads(deltas, 1), heads(dq, d), keys(dk), keys(dv), n, group, d, scale},
                          part, scratch.data());
  }

  int64_t n;
  int64_t group;
  int64_t d;
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
    double sum = 0;
    double delta = 0;
    for (size_t key = 0; key < p.size(); ++key) {
      p[key] = std::exp(of.scale * dot(of.q, of.k, key));
      sum += p[key];
    }
    for (size_t key = 0; key < p.size(); ++key) {
      p[key] /= sum;
      delta += p[key] * dot(of.dout, of.v, key);
    }
    for (size_t key = 0; key < p.size(); ++key) {
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

TEST_CASE("AttendRows: every instruction set equals the definition, forward and backward",
          "[kernels][attention]") {
  // Whole and partial vectors, tiles, blocks of keys and chunks of rows.
  const auto [n, group, d] = GENERATE(std::tuple<int64_t, int64_t, int64_t>{2, 1, 16},
                                      std::tuple<int64_t, int64_t, int64_t>{67, 3, 20},
                                      std::tuple<int64_t, int64_t, int64_t>{130, 1, 31},
                                      std::tuple<int64_t, int64_t, int64_t>{150, 2, 128});
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name, n, group, d);
    AttentionCase kernel{n, group, d};
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
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name);
    AttentionCase whole{150, 3, 32};
    whole.Forward(*variant, 0, 150);
    whole.Backward(*variant, {Gradients::kAll, 0, 150});
    AttentionCase parts{150, 3, 32};
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
  constexpr int64_t kBlocks = 7;
  const int32_t blocks[kBlocks] = {4, 0, 6, 2, 5, 1, 3};
  for (const Variant* variant : VariantsOfThisCpu()) {
    CAPTURE(variant->name, d);
    AttentionCase rows{100, 2, d};
    rows.Forward(*variant, 0, 100);
    AttentionCase cached{100, 2, d};
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
