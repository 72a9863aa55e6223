#include "services/worker/layers/gathered_blocks.h"

#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/collectives/test_ranks.h"

namespace lathe::worker {
namespace {

constexpr int64_t kNumBlocks = 5;

at::Tensor Block(int64_t block, int64_t num_bytes) {
  return at::arange(num_bytes).add(block * 31).remainder(251).to(at::kByte);
}

void Fill(GatheredBlocks& blocks, int64_t num_bytes) {
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    blocks.Buffer(i).copy_(Block(i, num_bytes));
    blocks.Keep(i);
  }
}

struct Seen {
  int64_t num_wrong = 0;
  std::vector<int64_t> num_gathers;  // after each Hold
  Shard own;
  int64_t num_bytes = 0;
};

TEST_CASE("GatheredBlocks: each block is whole when it is held, forward and backward", "[layers]") {
  const auto backend =
      GENERATE(TestBackend::kLocal, TestBackend::kGloo, TestBackend::kSharedMemory);
  const auto [world, num_bytes] =
      GENERATE(std::pair<int, int64_t>{2, 4096}, std::pair<int, int64_t>{3, 1000},
               std::pair<int, int64_t>{4, 100});  // the last: two ranks have padding only
  CAPTURE(backend, world, num_bytes);
  const int64_t size = num_bytes;
  const std::vector<Seen> ranks = AsRanks(backend, world, [&](Collectives& collectives) {
    GatheredBlocks blocks(kNumBlocks, size, at::kCPU, RankGroup(collectives));
    Fill(blocks, size);
    Seen seen{.own = blocks.own(), .num_bytes = blocks.NumBytes()};
    const auto hold = [&](int64_t block, std::optional<int64_t> next) {
      blocks.Hold(block, next);
      if (!blocks.IsHeld(block)) ++seen.num_wrong;
      if (!blocks.Buffer(block).equal(Block(block, size))) ++seen.num_wrong;
      blocks.Hold(block, next);  // another step of the same layer costs nothing
      seen.num_gathers.push_back(collectives.totals().num_calls);
    };
    for (int64_t i = 0; i + 1 < kNumBlocks; ++i) hold(i, i + 1);
    hold(kNumBlocks - 1, std::nullopt);
    for (int64_t i = kNumBlocks - 1; i > 0; --i) hold(i, i - 1);
    hold(0, std::nullopt);
    hold(3, 4);  // out of order: gathered at once
    return seen;
  });
  int64_t covered = 0;
  for (const Seen& seen : ranks) {
    CHECK(seen.num_wrong == 0);
    // The second Hold ends the gather of the next block. The last two blocks of a way are still
    // there on the way back, and block 4 after 3 is pulled in anew.
    CHECK(seen.num_gathers == std::vector<int64_t>{2, 3, 4, 5, 5, 5, 6, 7, 8, 8, 10});
    CHECK(seen.own.begin == covered);
    CHECK(seen.own.padded_size() == ranks[0].own.padded_size());
    CHECK(seen.num_bytes == (kNumBlocks + 2 * world) * seen.own.padded_size());
    covered += seen.own.size;
  }
  CHECK(covered == num_bytes);
}

TEST_CASE("GatheredBlocks: a lost rank ends the others, a block outside is refused", "[layers]") {
  FlightRecorder recorder;
  auto ranks = MakeLocalCollectives("fsdp", 2, {.timeout = kTestPatience}, recorder);
  GatheredBlocks blocks(kNumBlocks, 64, at::kCPU, RankGroup(*ranks[0]));
  CHECK_THROWS_AS(blocks.Hold(kNumBlocks, std::nullopt), c10::Error);
  CHECK_THROWS_AS(blocks.Hold(0, 2), c10::Error);
  ranks[1].reset();
  CHECK_THROWS_AS(blocks.Hold(0, 1), RanksDisagree);
}

}  // namespace
}  // namespace lathe::worker
