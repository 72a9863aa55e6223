#include "services/worker/memory/block_cache.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace lathe::worker {
namespace {

constexpr size_t kMib = size_t{1} << 20;

using Block = BlockCache::Block;

Block MustTake(BlockCache& cache, size_t bytes) {
  const std::optional<Block> block = cache.Take(bytes);
  REQUIRE(block.has_value());
  REQUIRE(block->bytes >= bytes);
  return *block;
}

// Takes blocks of these sizes, all at the same time, and returns them.
void Use(BlockCache& cache, const std::vector<size_t>& sizes) {
  std::vector<Block> blocks;
  for (const size_t size : sizes) blocks.push_back(MustTake(cache, size));
  for (const Block& block : blocks) cache.Return(block);
}

// While it lives, the process can map at most `bytes` more.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(size_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{pages * 4096 + bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("BlockCache: a block that returned is used for its size and for little less",
          "[memory]") {
  BlockCache cache;
  const Block block = MustTake(cache, 9 * kMib);
  std::memset(block.data, 1, block.bytes);
  cache.Return(block);
  const size_t size = GENERATE(9 * kMib, 9 * kMib - 1, 8 * kMib);
  const Block again = MustTake(cache, size);
  CHECK(again.data == block.data);
  CHECK(again.bytes == block.bytes);
  CHECK(cache.counters().num_mapped == 1);
  CHECK(cache.counters().num_reused == 1);
  cache.Return(again);
}

TEST_CASE("BlockCache: a block is not used for more, nor where over an eighth would lie idle",
          "[memory]") {
  BlockCache cache;
  Use(cache, {9 * kMib});
  const size_t size = GENERATE(9 * kMib + 1, 8 * kMib - 4096, kMib);
  Use(cache, {size});
  CHECK(cache.counters().num_reused == 0);
}

TEST_CASE("BlockCache: of blocks that fit the smallest is used", "[memory]") {
  BlockCache cache;
  const Block large = MustTake(cache, 36 * kMib);
  const Block fits = MustTake(cache, 33 * kMib);
  cache.Return(fits);
  cache.Return(large);
  const Block block = MustTake(cache, 32 * kMib);
  CHECK(block.data == fits.data);
  cache.Return(block);
}

TEST_CASE("BlockCache: blocks are whole, apart, and begin at pages", "[memory]") {
  BlockCache cache;
  std::vector<Block> blocks;
  for (size_t i = 0; i < 20; ++i) {
    blocks.push_back(MustTake(cache, kMib + i * 300'001));
    CHECK(reinterpret_cast<uintptr_t>(blocks.back().data) % 4096 == 0);
    std::memset(blocks.back().data, static_cast<int>(i), blocks.back().bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const char*>(blocks[i].data);
    CHECK(bytes[0] == static_cast<char>(i));
    CHECK(bytes[blocks[i].bytes - 1] == static_cast<char>(i));
    cache.Return(blocks[i]);
  }
}

TEST_CASE("BlockCache: used and kept together stay near the most that was in use", "[memory]") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  BlockCache cache;
  std::vector<Block> blocks;
  size_t most[2] = {0, 0};  // in this period and the last one
  for (int i = 0; i < 2000; ++i) {
    if (blocks.empty() || random() % 2 == 0) {
      blocks.push_back(MustTake(cache, (1 + random() % 64) * kMib));
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      cache.Return(blocks.back());
      blocks.pop_back();
    }
    if (i % 100 == 99) {
      cache.EndPeriod();
      most[1] = std::exchange(most[0], 0);
    }
    const BlockCache::Counters counters = cache.counters();
    most[0] = std::max(most[0], counters.bytes_in_use);
    REQUIRE(counters.bytes_in_use + counters.bytes_kept <=
            std::max(most[0], most[1]) + BlockCache::kSlackBytes);
  }
  CHECK(cache.counters().num_reused > 0);
  for (const Block& block : blocks) cache.Return(block);
}

TEST_CASE("BlockCache: the second period of a kind maps nothing", "[memory]") {
  BlockCache cache;
  const auto run_period = [&cache] {
    const Block stays = MustTake(cache, 5 * kMib);
    for (int step = 0; step < 3; ++step) Use(cache, {2 * kMib, 3 * kMib, 9 * kMib});
    cache.Return(stays);
    cache.EndPeriod();
  };
  run_period();
  const int64_t mapped = cache.counters().num_mapped;
  run_period();
  CHECK(cache.counters().num_mapped == mapped);
}

TEST_CASE("BlockCache: after a small period a large one's blocks are gone, the oldest first",
          "[memory]") {
  BlockCache cache;
  Use(cache, {200 * kMib, 300 * kMib, 100 * kMib});
  cache.EndPeriod();
  CHECK(cache.counters().bytes_kept == 600 * kMib);
  Use(cache, {100 * kMib});
  cache.EndPeriod();
  CHECK(cache.counters().bytes_kept == 100 * kMib);
  Use(cache, {100 * kMib});
  CHECK(cache.counters().num_mapped == 3);
}

TEST_CASE("BlockCache: Clear gives back all that is not in use", "[memory]") {
  BlockCache cache;
  const Block used = MustTake(cache, 3 * kMib);
  Use(cache, {4 * kMib});
  cache.Clear();
  CHECK(cache.counters().bytes_kept == 0);
  CHECK(cache.counters().bytes_in_use == 3 * kMib);
  std::memset(used.data, 1, used.bytes);
  cache.Return(used);
}

TEST_CASE("BlockCache: cached blocks make room before a block is refused", "[memory]") {
  BlockCache cache;
  Use(cache, {64 * kMib});
  {
    const AddressSpaceLimit limit(16 * kMib);
    CHECK_FALSE(cache.Take(100 * kMib).has_value());
    CHECK(cache.counters().bytes_kept == 0);
    CHECK(cache.counters().bytes_in_use == 0);
    Use(cache, {60 * kMib});
    Use(cache, {48 * kMib});  // does not fit beside the block before
  }
  CHECK(cache.counters().bytes_in_use == 0);
}

TEST_CASE("BlockCache: threads share it", "[memory]") {
  BlockCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (size_t i = 0; i < 200; ++i) {
        const std::optional<Block> block = cache.Take((1 + (i + t) % 3) * kMib);
        if (!block.has_value()) std::abort();
        *static_cast<int*>(block->data) = t;
        if (i % 50 == 0) cache.EndPeriod();
        if (*static_cast<int*>(block->data) != t) std::abort();
        cache.Return(*block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cache.counters().bytes_in_use == 0);
}

}  // namespace lathe::worker
