// Sampling on a GPU against the same by torch operations. Without a GPU each case says so and is
// not run.
#include <map>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/sampling/cached_attention.h"
#include "services/worker/sampling/test_model.h"

namespace lathe::worker {
namespace {

constexpr double kBf16Tolerance = 0.03;  // of numbers near 1

bool HasGpu() {
  if (at::hasCUDA()) return true;
  WARN("no GPU here: not run");
  return false;
}

ModelSpec SpecWithHeads(int64_t head_dim, int64_t num_heads = 4) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = head_dim;
  spec.num_heads = num_heads;
  return spec;
}

// One sequence of a pass: it grows by `num_rows`.
struct Growth {
  size_t sequence;
  int64_t num_rows;
};

// What both caches give for the same pass, from the same random projections.
struct Both {
  at::Tensor by_torch;
  at::Tensor by_pages;
};

class TwoCaches {
 public:
  explicit TwoCaches(const ModelSpec& spec)
      : spec_(spec),
        plain_(spec, 2000 * KvCache::BytesPerToken(spec, MatmulArithmetic::kFp32),
               MatmulArithmetic::kFp32),
        paged_(spec, 2000 * KvCache::BytesPerToken(spec, MatmulArithmetic::kBf16),
               MatmulArithmetic::kBf16),
        rope_(spec.head_dim, spec.max_position_embeddings, 1e4, at::kCUDA),
        norm_(at::rand({spec.head_dim}).add_(0.5).to(at::kCUDA)) {}

  Both Run(const std::vector<Growth>& pass) {
    int64_t num_rows = 0;
    std::vector<int64_t> positions;
    std::vector<CachedRows> plain;
    std::vector<CachedRows> paged;
    for (const Growth& growth : pass) {
      const int64_t first = plain_sequences_[growth.sequence].length;
      for (int64_t i = 0; i < growth.num_rows; ++i) positions.push_back(first + i);
      REQUIRE(plain_.Extend(plain_sequences_[growth.sequence], growth.num_rows));
      REQUIRE(paged_.Extend(paged_sequences_[growth.sequence], growth.num_rows));
      plain.push_back({&plain_sequences_[growth.sequence], growth.num_rows});
      paged.push_back({&paged_sequences_[growth.sequence], growth.num_rows});
      num_rows += growth.num_rows;
    }
    const int64_t heads = spec_.num_heads + 2 * spec_.num_kv_heads;
    const at::Tensor qkv = at::randn({num_rows, heads, spec_.head_dim}).to(at::kCUDA);
    const QkHeads qk = {qkv.narrow(1, 0, spec_.num_heads),
                        qkv.narrow(1, spec_.num_heads, spec_.num_kv_heads)};
    const at::Tensor v = qkv.narrow(1, spec_.num_heads + spec_.num_kv_heads, spec_.num_kv_heads);
    const QkNormWeights norms = {.q_weight = norm_, .k_weight = norm_, .eps = 1e-6};
    const at::Tensor at_positions = at::tensor(positions, at::kLong).to(at::kCUDA);
    const auto attend = [&](KvCache& cache, const std::vector<CachedRows>& rows) {
      CachedAttention attention(cache, rows, at::Device(at::kCUDA, 0));
      return attention.NormRopeAttend(1, qk, v, norms, rope_, at_positions).to(at::kCPU);
    };
    return {attend(plain_, plain), attend(paged_, paged)};
  }

 private:
  const ModelSpec spec_;
  KvCache plain_;
  KvCache paged_;
  std::map<size_t, KvSequence> plain_sequences_;
  std::map<size_t, KvSequence> paged_sequences_;
  const RopeTable rope_;
  const at::Tensor norm_;
};

TEST_CASE("Paged attention on a GPU is attention by torch, up to bf16", "[sampling][gpu]") {
  if (!HasGpu()) return;
  const int64_t head_dim = GENERATE(64, 128);
  const int64_t num_heads = GENERATE(2, 4, 16);  // over two kv heads
  at::manual_seed(5);
  TwoCaches caches(SpecWithHeads(head_dim, num_heads));
  const std::vector<std::vector<Growth>> passes = {{{0, 40}, {1, 17}},
                                                   {{0, 1}, {1, 1}},
                                                   {{0, 1}, {1, 9}, {2, 130}, {3, 1}},
                                                   {{2, 1}, {3, 1}, {0, 1}},
                                                   {{2, 256}, {1, 1}}};
  for (const std::vector<Growth>& pass : passes) {
    const Both both = caches.Run(pass);
    CHECK(at::allclose(both.by_pages, both.by_torch, kBf16Tolerance, kBf16Tolerance));
  }
}

TEST_CASE("A batch of pages names rows, pages and places", "[sampling]") {
  const KvSequence whole{.blocks = {4, 9, 2}, .length = 33};
  const KvSequence one{.blocks = {7}, .length = 16};
  PagedBatch batch;
  batch.Add({.kv = &whole, .num_rows = 3});
  batch.Add({.kv = &one, .num_rows = 1});
  batch.AddPadding(11);
  using Numbers = std::vector<int32_t>;
  CHECK(batch.rows.row_starts == Numbers({0, 3, 4, 5}));
  CHECK(batch.rows.page_starts == Numbers({0, 3, 4, 5}));
  CHECK(batch.pages == Numbers({4, 9, 2, 7, 11}));
  CHECK(batch.last_page_tokens == Numbers({1, 16, 1}));
  // Positions 30 and 31 of block 9, 32 of block 2.
  CHECK(batch.slots == Numbers({9 * 16 + 14, 9 * 16 + 15, 2 * 16, 7 * 16 + 15, 11 * 16}));
}

}  // namespace
}  // namespace lathe::worker
