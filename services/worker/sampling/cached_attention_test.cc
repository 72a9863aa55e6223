#include "services/worker/sampling/cached_attention.h"

#include <catch2/catch.hpp>

#include "services/worker/sampling/test_model.h"

namespace lathe::worker {
namespace {

constexpr int64_t kCacheBytes = 1 << 22;
constexpr double kTolerance = 1e-5;  // fp32, a few hundred terms

double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

struct Qkv {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

Qkv RandomQkv(int64_t num_rows, int64_t head_dim = 16) {
  return {at::randn({num_rows, 4, head_dim}), at::randn({num_rows, 2, head_dim}),
          at::randn({num_rows, 2, head_dim})};
}

at::Tensor Plain(const Qkv& x) { return PlainAttention().Attend(0, x.q, x.k, x.v); }

at::Tensor AttendRange(KvCache& cache, KvSequence& kv, const Qkv& x, int64_t begin, int64_t end) {
  REQUIRE(cache.Extend(kv, end - begin));
  CachedAttention attention(cache, {{.kv = &kv, .num_rows = end - begin}}, at::kCPU);
  const auto rows = [&](const at::Tensor& t) { return t.narrow(0, begin, end - begin); };
  return attention.Attend(0, rows(x.q), rows(x.k), rows(x.v));
}

TEST_CASE("Cached attention: a prompt in chunks, then tokens, equals one plain pass",
          "[sampling]") {
  at::manual_seed(1);
  const Qkv x = RandomQkv(90);
  KvCache cache(SmallSpec(), kCacheBytes);
  KvSequence kv;
  std::vector<at::Tensor> parts = {AttendRange(cache, kv, x, 0, 33),
                                   AttendRange(cache, kv, x, 33, 80)};
  for (int64_t row = 80; row < 90; ++row) parts.push_back(AttendRange(cache, kv, x, row, row + 1));
  CHECK(MaxDifference(at::cat(parts), Plain(x)) < kTolerance);
}

TEST_CASE("Cached attention: the kernel equals torch operations for sequences of any length",
          "[sampling]") {
  at::manual_seed(2);
  const int64_t head_dim = GENERATE(16, 24, 64, 128);
  KvCache cache(SmallSpec(), kCacheBytes);
  std::vector<KvSequence> sequences(5);
  std::vector<CachedRows> rows;
  const std::vector<int64_t> lengths = {1, 15, 16, 17, 200};
  for (size_t s = 0; s < sequences.size(); ++s) {
    AttendRange(cache, sequences[s], RandomQkv(lengths[s], head_dim), 0, lengths[s]);
    rows.push_back({.kv = &sequences[s], .num_rows = 1});
  }
  const at::Tensor q = at::randn({5, 4, head_dim}) * 2;
  const at::Tensor by_kernel = DecodeByKernel(q, cache.keys(0), cache.values(0), rows);
  CHECK(MaxDifference(by_kernel, DecodeByGather(q, cache.keys(0), cache.values(0), rows)) <
        kTolerance);
  const at::Tensor alone =
      DecodeByKernel(q.narrow(0, 3, 1), cache.keys(0), cache.values(0), {rows[3]});
  CHECK(at::equal(alone, by_kernel.narrow(0, 3, 1)));
}

}  // namespace
}  // namespace lathe::worker
