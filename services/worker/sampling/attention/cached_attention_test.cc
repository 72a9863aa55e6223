#include "services/worker/sampling/attention/cached_attention.h"
#include "services/worker/torch/aten.h"

#include <catch2/catch.hpp>

#include "services/worker/layers/attention.h"
#include "services/worker/layers/norms.h"
#include "services/worker/models/packed_attention.h"
#include "services/worker/sampling/attention/cached_attention_by_kernel.h"
#include "services/worker/testing/test_model.h"

namespace lathe::worker {
namespace {

constexpr int64_t kCacheBytes = 1 << 22;
constexpr double kAttentionTolerance = 1e-5;  // fp32, a few hundred terms

double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Returns the arithmetics that this CPU supports.
std::vector<MatmulArithmetic> Arithmetics() {
  std::vector<MatmulArithmetic> all = {MatmulArithmetic::kFp32};
  if (CpuHasBf16()) all.push_back(MatmulArithmetic::kBf16);
  return all;
}

struct Qkv {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

Qkv RandomQkv(int64_t num_rows, int64_t head_dim = 16, int64_t group = 2) {
  return {at::randn({num_rows, 2 * group, head_dim}), at::randn({num_rows, 2, head_dim}),
          at::randn({num_rows, 2, head_dim})};
}

AttentionSpec SpecFor(int64_t head_dim, int64_t group, int64_t window = 0) {
  return {.num_heads = 2 * group,
          .num_kv_heads = 2,
          .head_dim = head_dim,
          .scale = ScaleOf(head_dim),
          .window = window};
}

AttentionSpec SpecOf(const Qkv& x, int64_t window = 0) {
  return SpecFor(x.q.size(2), x.q.size(1) / 2, window);
}

at::Tensor AttendRange(KvCache& cache, KvSequence& kv, const Qkv& x, int64_t begin, int64_t end,
                       int64_t window = 0) {
  REQUIRE(cache.Extend(kv, end - begin));
  CachedAttention attention(cache, {{.kv = &kv, .num_rows = end - begin}}, at::kCPU);
  const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, end - begin); };
  return attention.Attend(0, SpecOf(x, window), {{rows(x.q), rows(x.k)}, rows(x.v)}, {});
}

TEST_CASE("Cached attention: a prompt in chunks, then tokens, has the bits of one training pass",
          "[sampling]") {
  at::manual_seed(1);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t head_dim = GENERATE(16, 24, 64, 128, 256);
  const int64_t group = GENERATE(1, 2, 3, 5);
  const int64_t window = GENERATE(0, 50, 64);
  const Qkv x = RandomQkv(290, head_dim, group);
  KvCache cache(SmallSpec(), kCacheBytes, arithmetic);
  KvSequence kv;
  std::vector<at::Tensor> parts;
  int64_t done = 0;
  for (const int64_t end : {33, 64, 65, 250, 290}) {
    parts.push_back(AttendRange(cache, kv, x, done, end, window));
    done = end;
  }
  KvSequence slow;
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < 290; ++row) {
    rows.push_back(AttendRange(cache, slow, x, row, row + 1, window));
  }
  const at::Tensor trained =
      CausalAttention(SpecOf(x, window), x.q, x.k, x.v, {0, 290}, arithmetic).out;
  CHECK(at::equal(at::cat(parts), trained));
  CHECK(at::equal(at::cat(rows), trained));
}

TEST_CASE("Cached attention: sequences of one pass have the bits each has alone", "[sampling]") {
  at::manual_seed(3);
  KvCache cache(SmallSpec(), kCacheBytes, GENERATE(from_range(Arithmetics())));
  std::vector<KvSequence> sequences(4);
  std::vector<CachedRows> rows;
  std::vector<Qkv> inputs;
  std::vector<at::Tensor> q, k, v, alone;
  const std::vector<int64_t> lengths = {130, 1, 40, 300};
  for (size_t s = 0; s < lengths.size(); ++s) {
    inputs.push_back(RandomQkv(lengths[s]));
    KvSequence kv;
    alone.push_back(AttendRange(cache, kv, inputs[s], 0, lengths[s]));
    cache.Release(kv);
    REQUIRE(cache.Extend(sequences[s], lengths[s]));
    rows.push_back({.kv = &sequences[s], .num_rows = lengths[s]});
    q.push_back(inputs[s].q);
    k.push_back(inputs[s].k);
    v.push_back(inputs[s].v);
  }
  CachedAttention attention(cache, rows, at::kCPU);
  const QkvHeads raw = {{at::cat(q), at::cat(k)}, at::cat(v)};
  CHECK(at::equal(attention.Attend(0, SpecOf(inputs[0]), raw, {}), at::cat(alone)));
}

TEST_CASE("Cached attention: the kernel equals torch operations for sequences of any length",
          "[sampling]") {
  at::manual_seed(2);
  const int64_t head_dim = GENERATE(16, 24, 64, 128);
  KvCache cache(SmallSpec(), kCacheBytes, MatmulArithmetic::kFp32);
  std::vector<KvSequence> sequences(5);
  std::vector<CachedRows> rows;
  const std::vector<int64_t> lengths = {1, 15, 16, 17, 200};
  for (size_t s = 0; s < sequences.size(); ++s) {
    AttendRange(cache, sequences[s], RandomQkv(lengths[s], head_dim), 0, lengths[s]);
    rows.push_back({.kv = &sequences[s], .num_rows = 1});
  }
  const at::Tensor q = at::randn({5, 4, head_dim}) * 2;
  const AttentionSpec spec = SpecFor(head_dim, 2, GENERATE(0, 16, 100));
  const auto attend = [&](const at::Tensor& queries, const std::vector<CachedRows>& of) {
    return AttendByKernel(spec, queries, cache.keys(0), cache.values(0),
                          PlanForKernel(of, 4, 2, MatmulArithmetic::kFp32));
  };
  const at::Tensor by_kernel = attend(q, rows);
  CHECK(MaxDifference(by_kernel, DecodeByGather(spec, q, cache.keys(0), cache.values(0), rows)) <
        kAttentionTolerance);
  CHECK(at::equal(attend(q.narrow(0, 3, 1), {rows[3]}), by_kernel.narrow(0, 3, 1)));
}

TEST_CASE("Cached attention: samples of one prompt read it together with the bits each has alone",
          "[sampling]") {
  at::manual_seed(4);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // gives the largest groups
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t head_dim = GENERATE(16, 24);
  const int64_t group = GENERATE(1, 5);
  const int64_t window = GENERATE(0, 70);
  // Prompt length and expected number of groups. A group has at most four members, and `other` is a
  // group by itself.
  const auto [prompt, num_groups] = GENERATE(table<int64_t, size_t>({{63, 8}, {64, 4}, {200, 3}}));
  DenseShape shape = SmallShape();
  shape.head_dim = head_dim;
  const DecoderSpec model = DenseDecoder(shape);
  KvCache cache(model, kCacheBytes, arithmetic);
  KvSequence other;
  AttendRange(cache, other, RandomQkv(70, head_dim, group), 0, 70);
  KvSequence shared;
  AttendRange(cache, shared, RandomQkv(prompt, head_dim, group), 0, prompt);
  constexpr int kSamples = 7;
  std::vector<KvSequence> samples(kSamples);
  for (int64_t s = 0; s < kSamples; ++s) {  // of different lengths
    REQUIRE(cache.Fork(shared, samples[s]));
    for (int64_t i = 0; i < 40 * s; i += 40) {
      AttendRange(cache, samples[s], RandomQkv(prompt + i + 40, head_dim, group), prompt + i,
                  prompt + i + 40);
    }
  }
  std::vector<CachedRows> rows = {{.kv = &samples[0], .num_rows = 1},
                                  {.kv = &other, .num_rows = 1}};
  for (int64_t s = 1; s < kSamples; ++s) rows.push_back({.kv = &samples[s], .num_rows = 1});
  const auto plan = [&](const std::vector<CachedRows>& of) {
    return PlanForKernel(of, 2 * group, 2, arithmetic);
  };
  const AttentionPlan together = plan(rows);
  CHECK(together.groups.size() == num_groups);
  const at::Tensor q = at::randn({8, 2 * group, head_dim}) * 2;
  const AttentionSpec spec = SpecFor(head_dim, group, window);
  const at::Tensor out = AttendByKernel(spec, q, cache.keys(0), cache.values(0), together);
  for (int64_t s = 0; s < 8; ++s) {
    const at::Tensor alone =
        AttendByKernel(spec, q.narrow(0, s, 1), cache.keys(0), cache.values(0), plan({rows[s]}));
    CHECK(at::equal(out.narrow(0, s, 1), alone));
  }
  at::set_num_threads(threads);
}

TEST_CASE("Cached attention: preparation and writing in one step have the bits of three",
          "[sampling]") {
  at::manual_seed(5);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t head_dim = GENERATE(16, 24, 128);
  const int64_t num_rows = GENERATE(1, 20, 1000);  // 1000 rows are cut into chunks
  const bool has_norm = GENERATE(false, true);
  const bool has_rope = GENERATE(false, true);
  const RopeTable rope({.theta = 1e4}, head_dim, 2048, at::kCPU);
  QkPreparation preparation;
  if (has_norm) {
    preparation = {
        .q_norm = at::rand({head_dim}) + 0.5, .k_norm = at::rand({head_dim}) + 0.5, .eps = 1e-6};
  }
  if (has_rope) preparation.rope = &rope;
  DenseShape shape = SmallShape();
  shape.head_dim = head_dim;
  const DecoderSpec model = DenseDecoder(shape);
  const at::Tensor past = at::randn({33, 8 * head_dim});
  const at::Tensor qkv = at::randn({num_rows, 8 * head_dim});
  const auto run = [&](bool is_fused) {
    KvCache cache(model, 1 << 24, arithmetic);
    KvSequence kv;
    at::Tensor out;
    for (const at::Tensor& x : {past, qkv}) {
      preparation.positions = at::arange(kv.length, kv.length + x.size(0), at::kLong);
      REQUIRE(cache.Extend(kv, x.size(0)));
      CachedAttention attention(cache, {{.kv = &kv, .num_rows = x.size(0)}}, at::kCPU);
      const at::Tensor heads = x.view({x.size(0), 8, head_dim});
      const QkvHeads raw = {{heads.narrow(1, 0, 4), heads.narrow(1, 4, 2)}, heads.narrow(1, 6, 2)};
      const AttentionSpec spec = SpecFor(head_dim, 2);
      out = is_fused ? attention.Attend(0, spec, raw, preparation)
                     : attention.Attend(0, spec, {PrepareQk(raw.qk, preparation), raw.v}, {});
    }
    return out;
  };
  CHECK(at::equal(run(true), run(false)));
}

// A layer of Gemma 3's kind: its own window, scale, norms and rope.
struct Layer {
  AttentionSpec spec;
  QkPreparation preparation;
};

TEST_CASE("Cached attention: layers of one pass have their own window, scale, norms and rope",
          "[sampling]") {
  at::manual_seed(6);
  constexpr int64_t kHeadDim = 256;
  const RopeTable local({.theta = 1e4}, kHeadDim, 512, at::kCPU);
  const RopeTable global({.type = RopeType::kLinear, .theta = 1e6, .factor = 8}, kHeadDim, 512,
                         at::kCPU);
  std::vector<Layer> layers = {{SpecFor(kHeadDim, 3, /*window=*/30), {.rope = &local}},
                               {SpecFor(kHeadDim, 3), {.rope = &global}}};
  layers[0].spec.scale = 0.1;
  layers[1].preparation.q_norm = at::rand({kHeadDim}) + 0.5;
  layers[1].preparation.k_norm = at::rand({kHeadDim}) + 0.5;
  layers[1].preparation.eps = 1e-6;
  DenseShape shape = SmallShape();
  shape.head_dim = kHeadDim;
  KvCache cache(DenseDecoder(shape), 1 << 24, MatmulArithmetic::kFp32);
  const Qkv x = RandomQkv(170, kHeadDim, 3);
  const auto attend = [&](AttentionContext& attention, size_t layer, int64_t begin, int64_t end) {
    const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, end - begin); };
    QkPreparation preparation = layers[layer].preparation;
    preparation.positions = at::arange(begin, end, at::kLong);
    return attention.Attend(static_cast<int64_t>(layer), layers[layer].spec,
                            {{rows(x.q), rows(x.k)}, rows(x.v)}, preparation);
  };
  KvSequence kv;
  std::vector<std::vector<at::Tensor>> parts(2);
  for (const auto& [begin, end] : {std::pair(0, 70), {70, 168}, {168, 169}, {169, 170}}) {
    REQUIRE(cache.Extend(kv, end - begin));
    CachedAttention attention(cache, {{.kv = &kv, .num_rows = end - begin}}, at::kCPU);
    for (size_t layer : {0, 1}) parts[layer].push_back(attend(attention, layer, begin, end));
  }
  const PackedRows rows_of_training{.tokens = at::zeros({170}, at::kLong), .cu_seqlens = {0, 170}};
  PackedAttention packed(rows_of_training, MatmulArithmetic::kFp32);
  for (size_t layer : {0, 1}) {
    CHECK(at::equal(at::cat(parts[layer]), attend(packed, layer, 0, 170)));
  }
}

}  // namespace
}  // namespace lathe::worker
