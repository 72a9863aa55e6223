#include "services/worker/sampling/cache/kv_cache.h"

#include <limits>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_model.h"

namespace lathe::worker {
namespace {

KvCache KvCacheOf(int64_t num_blocks, MatmulArithmetic attention = MatmulArithmetic::kFp32) {
  return KvCache(
      SmallSpec(),
      num_blocks * KvCache::kBlockTokens * KvCache::BytesPerToken(SmallSpec(), attention),
      attention);
}

// Writes `value` to every layer of the sequence's tokens [begin, length).
void Fill(KvCache& cache, const KvSequence& sequence, int64_t begin, double value) {
  std::vector<int64_t> blocks;
  std::vector<int64_t> places;
  for (int64_t i = begin; i < sequence.length; ++i) {
    blocks.push_back(sequence.blocks[i / KvCache::kBlockTokens]);
    places.push_back(i % KvCache::kBlockTokens);
  }
  const at::Tensor rows = at::full({static_cast<int64_t>(blocks.size()), 2, 16}, value);
  for (int64_t layer = 0; layer < 2; ++layer) {
    cache.Write(layer, at::tensor(blocks, at::kLong), at::tensor(places, at::kLong), rows, rows);
  }
}

// Returns the common value of one token's key and value in layer 1.
float At(const KvCache& cache, const KvSequence& sequence, int64_t position) {
  const int64_t block = sequence.blocks[position / KvCache::kBlockTokens];
  const int64_t place = position % KvCache::kBlockTokens;
  const at::Tensor key = cache.keys(1).select(0, block).select(2, place);
  const at::Tensor value = cache.values(1).select(0, block).select(1, place);
  REQUIRE(at::equal(key, value));
  return value.sum().item<float>() / 32;
}

TEST_CASE("KV cache: blocks are taken as tokens come and all come back", "[sampling]") {
  KvCache cache = KvCacheOf(4);
  REQUIRE(cache.num_blocks() == 4);
  KvSequence sequence;
  REQUIRE(cache.Extend(sequence, 16));
  CHECK(cache.num_free_blocks() == 3);
  REQUIRE(cache.Extend(sequence, 17));
  CHECK(cache.num_free_blocks() == 1);
  CHECK(sequence.length == 33);
  cache.Release(sequence);
  CHECK(cache.num_free_blocks() == 4);
  CHECK(sequence.length == 0);
}

TEST_CASE("KV cache: freed blocks are zeroed, shared ones when the last holder leaves",
          "[sampling]") {
  KvCache cache = KvCacheOf(3);
  KvSequence prompt;
  REQUIRE(cache.Extend(prompt, 20));
  Fill(cache, prompt, 0, 1.0);
  KvSequence fork;
  REQUIRE(cache.Fork(prompt, fork));
  const KvSequence before = prompt;
  cache.Release(prompt);
  CHECK(At(cache, before, 3) == 1.0f);   // shared with the fork
  CHECK(At(cache, before, 17) == 0.0f);  // in the prompt's own block
  CHECK(At(cache, fork, 17) == 1.0f);
  cache.Release(fork);
  for (int64_t layer = 0; layer < 2; ++layer) {
    CHECK(cache.keys(layer).count_nonzero().item<int64_t>() == 0);
    CHECK(cache.values(layer).count_nonzero().item<int64_t>() == 0);
  }
}

TEST_CASE("KV cache: bf16 takes half the bytes, words of two numbers, and forks between the two",
          "[sampling]") {
  if (!CpuHasBf16()) return;
  KvCache cache = KvCacheOf(2, MatmulArithmetic::kBf16);
  CHECK(cache.num_blocks() == 2);
  CHECK(2 * KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kBf16) ==
        KvCache::BytesPerToken(SmallSpec(), MatmulArithmetic::kFp32));
  KvSequence prompt;
  REQUIRE(cache.Extend(prompt, 3));
  Fill(cache, prompt, 0, 1.0);  // 0x3f80 in bf16
  KvSequence fork;
  REQUIRE(cache.Fork(prompt, fork));
  REQUIRE(cache.Extend(fork, 1));
  Fill(cache, fork, 3, 2.0);  // 0x4000
  REQUIRE(cache.Extend(prompt, 1));
  Fill(cache, prompt, 3, 1.0 + 1.0 / 512);  // rounds to 1.0 in bf16
  // Returns the words with the values of tokens 2 and 3 in layer 1.
  const auto last_pair = [&](const KvSequence& sequence) {
    return cache.values(1).select(0, sequence.blocks[0]).select(1, 1);
  };
  CHECK(last_pair(fork).eq(0x40003f80).all().item<bool>());
  CHECK(last_pair(prompt).eq(0x3f803f80).all().item<bool>());
  const at::Tensor key = cache.keys(1).select(0, fork.blocks[0]).select(2, 3);
  CHECK(key.eq(0x40004000).all().item<bool>());
}

TEST_CASE("KV cache: the first token of a bf16 word leaves zero for the second", "[sampling]") {
  if (!CpuHasBf16()) return;
  KvCache cache = KvCacheOf(1, MatmulArithmetic::kBf16);
  KvSequence sequence;
  REQUIRE(cache.Extend(sequence, 2));
  Fill(cache, sequence, 0, std::numeric_limits<double>::quiet_NaN());
  sequence.length = 1;  // token 1's old NaN must not remain
  Fill(cache, sequence, 0, 1.0);
  CHECK(cache.values(1).select(2, 0).eq(0x3f80).all().item<bool>());
}

TEST_CASE("KV cache: a sequence that does not fit changes nothing", "[sampling]") {
  KvCache cache = KvCacheOf(2);
  KvSequence sequence;
  REQUIRE(cache.Extend(sequence, 10));
  CHECK_FALSE(cache.Extend(sequence, 23));
  CHECK(sequence.length == 10);
  CHECK(cache.num_free_blocks() == 1);
}

TEST_CASE("KV cache: a fork shares whole blocks and owns the rest", "[sampling]") {
  KvCache cache = KvCacheOf(4);
  KvSequence prompt;
  REQUIRE(cache.Extend(prompt, 20));
  Fill(cache, prompt, 0, 1.0);
  KvSequence fork;
  REQUIRE(cache.Fork(prompt, fork));
  CHECK(cache.num_free_blocks() == 1);
  CHECK(fork.blocks[0] == prompt.blocks[0]);
  CHECK(fork.blocks[1] != prompt.blocks[1]);
  CHECK(At(cache, fork, 19) == 1.0f);

  REQUIRE(cache.Extend(fork, 1));
  Fill(cache, fork, 20, 2.0);
  REQUIRE(cache.Extend(prompt, 1));
  Fill(cache, prompt, 20, 3.0);
  CHECK(At(cache, fork, 20) == 2.0f);
  CHECK(At(cache, prompt, 20) == 3.0f);

  cache.Release(prompt);
  CHECK(At(cache, fork, 0) == 1.0f);
  cache.Release(fork);
  CHECK(cache.num_free_blocks() == 4);
}

TEST_CASE("KV cache: a fork without a free block fails and takes nothing", "[sampling]") {
  KvCache cache = KvCacheOf(2);
  KvSequence prompt;
  REQUIRE(cache.Extend(prompt, 20));
  Fill(cache, prompt, 0, 1.0);
  KvSequence fork;
  CHECK_FALSE(cache.Fork(prompt, fork));
  CHECK(fork.blocks.empty());
  cache.Release(prompt);
  CHECK(cache.num_free_blocks() == 2);
}

}  // namespace
}  // namespace lathe::worker
