#include "services/worker/sampling/cached_attention.h"

#include <catch2/catch.hpp>

#include "services/worker/layers/attention.h"
#include "services/worker/sampling/test_model.h"

namespace lathe::worker {
namespace {

constexpr int64_t kCacheBytes = 1 << 22;
constexpr double kTolerance = 1e-5;  // fp32, a few hundred terms

double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Those this CPU has.
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

at::Tensor AttendRange(KvCache& cache, KvSequence& kv, const Qkv& x, int64_t begin, int64_t end) {
  REQUIRE(cache.Extend(kv, end - begin));
  CachedAttention attention(cache, {{.kv = &kv, .num_rows = end - begin}}, at::kCPU);
  const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, end - begin); };
  return attention.Attend(0, rows(x.q), rows(x.k), rows(x.v));
}

TEST_CASE("Cached attention: a prompt in chunks, then tokens, has the bits of one training pass",
          "[sampling]") {
  at::manual_seed(1);
  const auto arithmetic = GENERATE(from_range(Arithmetics()));
  const int64_t head_dim = GENERATE(16, 24, 64, 128);
  const int64_t group = GENERATE(1, 2, 5);
  const Qkv x = RandomQkv(290, head_dim, group);
  KvCache cache(SmallSpec(), kCacheBytes, arithmetic);
  KvSequence kv;
  std::vector<at::Tensor> parts;
  int64_t done = 0;
  for (const int64_t end : {33, 64, 65, 250, 290}) {
    parts.push_back(AttendRange(cache, kv, x, done, end));
    done = end;
  }
  KvSequence slow;
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < 290; ++row) {
    rows.push_back(AttendRange(cache, slow, x, row, row + 1));
  }
  const at::Tensor trained = CausalAttention(x.q, x.k, x.v, {0, 290}, arithmetic).out;
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
  CHECK(at::equal(attention.Attend(0, at::cat(q), at::cat(k), at::cat(v)), at::cat(alone)));
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
  const at::Tensor by_kernel = AttendCachedByKernel(q, cache.keys(0), cache.values(0), rows);
  CHECK(MaxDifference(by_kernel, DecodeByGather(q, cache.keys(0), cache.values(0), rows)) <
        kTolerance);
  const at::Tensor alone =
      AttendCachedByKernel(q.narrow(0, 3, 1), cache.keys(0), cache.values(0), {rows[3]});
  CHECK(at::equal(alone, by_kernel.narrow(0, 3, 1)));
}

}  // namespace
}  // namespace lathe::worker
