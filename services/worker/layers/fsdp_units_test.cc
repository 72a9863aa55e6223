#include "services/worker/layers/fsdp_units.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

constexpr int64_t kNumBlocks = 5;

std::vector<int64_t> SizesOf(int64_t num_bytes) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < kNumBlocks; ++i) sizes.push_back(num_bytes + i % 3 * 64);
  return sizes;
}

at::Tensor Content(const FsdpUnits& blocks, int64_t block) {
  return at::arange(blocks.Buffer(block).size(0)).add(block * 31).remainder(251).to(at::kByte);
}

void Fill(FsdpUnits& blocks) {
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    blocks.Buffer(i).copy_(Content(blocks, i));
    blocks.Reshard(i);
  }
}

struct Seen {
  int64_t num_wrong = 0;
  std::vector<int64_t> num_gathers;  // after each Unshard
  std::vector<Shard> own;            // by block
  int64_t num_bytes = 0;
};

TEST_CASE("FsdpUnits: each block is whole when it is held, forward and backward", "[layers]") {
  const auto backend =
      GENERATE(TestBackend::kLocal, TestBackend::kGloo, TestBackend::kSharedMemory);
  const auto [world, num_bytes] =
      GENERATE(std::pair<int, int64_t>{2, 4096}, std::pair<int, int64_t>{3, 1000},
               std::pair<int, int64_t>{4, 100});  // in the last case two ranks have padding only
  CAPTURE(backend, world, num_bytes);
  const std::vector<int64_t> sizes = SizesOf(num_bytes);
  const std::vector<Seen> ranks = AsRanks(backend, world, [&](Collectives& collectives) {
    FsdpUnits blocks(sizes, at::kCPU, RankGroup(collectives));
    Fill(blocks);
    Seen seen{.num_bytes = blocks.NumBytes()};
    for (int64_t i = 0; i < kNumBlocks; ++i) seen.own.push_back(blocks.own(i));
    const auto hold = [&](int64_t block, std::optional<int64_t> next) {
      blocks.Unshard(block, next);
      if (!blocks.Buffer(block).equal(Content(blocks, block))) ++seen.num_wrong;
      blocks.Unshard(block, next);  // a repeated call gathers nothing
      seen.num_gathers.push_back(collectives.totals().num_calls);
    };
    for (int64_t i = 0; i + 1 < kNumBlocks; ++i) hold(i, i + 1);
    hold(kNumBlocks - 1, std::nullopt);
    for (int64_t i = kNumBlocks - 1; i > 0; --i) hold(i, i - 1);
    hold(0, std::nullopt);
    hold(3, 4);  // not prefetched, gathered at once
    return seen;
  });
  for (const Seen& seen : ranks) {
    CHECK(seen.num_wrong == 0);
    // The second Unshard of a pair waits for the gather of the next block. The last two blocks of
    // the forward pass are still in the buffers on the way back. Block 4 after block 3 is gathered
    // anew.
    CHECK(seen.num_gathers == std::vector<int64_t>{2, 3, 4, 5, 5, 5, 6, 7, 8, 8, 10});
  }
  int64_t share_bytes = 0;
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    int64_t covered = 0;
    for (const Seen& seen : ranks) {
      CHECK(seen.own[i].begin == covered);
      CHECK(seen.own[i].padded_size() == ranks[0].own[i].padded_size());
      covered += seen.own[i].size;
    }
    CHECK(covered == sizes[i]);
    share_bytes += ranks[0].own[i].padded_size();
  }
  // Each of the two buffers has the size of a largest block.
  const int64_t buffer_bytes = world * ranks[0].own[2].padded_size();
  CHECK(ranks[0].num_bytes <= share_bytes + 2 * buffer_bytes);
  CHECK(ranks[0].num_bytes > share_bytes + buffer_bytes);
}

TEST_CASE("FsdpUnits: a gather that is no longer wanted is completed", "[layers]") {
  const auto calls = AsRanks(TestBackend::kGloo, 2, [&](Collectives& collectives) {
    FsdpUnits blocks(SizesOf(4096), at::kCPU, RankGroup(collectives));
    Fill(blocks);
    blocks.Unshard(0, 1);
    blocks.End();
    blocks.End();
    const int64_t num_ended = collectives.totals().num_calls;
    blocks.Unshard(1);  // already in its buffer
    TORCH_CHECK(blocks.Buffer(1).equal(Content(blocks, 1)));
    return std::pair(num_ended, collectives.totals().num_calls);
  });
  for (const auto& [num_ended, num_calls] : calls) {
    CHECK(num_ended == 2);
    CHECK(num_calls == 2);
  }
}

TEST_CASE("FsdpUnits: a rank that does less than the plan holds the rest of it at its end",
          "[layers]") {
  const int world = 3;
  const auto ranks = AsRanks(TestBackend::kLocal, world, [&](Collectives& collectives) -> int {
    FsdpUnits blocks(SizesOf(512), at::kCPU, RankGroup(collectives));
    Fill(blocks);
    int num_wrong = 0;
    const auto run = [&](const std::vector<int64_t>& plan, std::optional<int64_t> then) {
      blocks.BeginPlan(plan, then);
      // Rank 0 holds none of them, rank 1 one, rank 2 two.
      const auto most = static_cast<size_t>(collectives.rank());
      for (size_t i = 0; i < std::min(most, plan.size()); ++i) {
        blocks.Unshard(plan[i]);
        num_wrong += blocks.Buffer(plan[i]).equal(Content(blocks, plan[i])) ? 0 : 1;
      }
      blocks.EndPlan();
    };
    run({0, 1, 2}, 3);
    run({3, 4}, 2);  // 2 and 4 share a buffer
    run({2, 1, 0}, std::nullopt);
    blocks.Unshard(4, 3);  // both are gathered again without a plan
    num_wrong += blocks.Buffer(4).equal(Content(blocks, 4)) ? 0 : 1;
    blocks.BeginPlan({3, 2}, std::nullopt);
    try {
      blocks.Unshard(2);  // not the next of the plan
      ++num_wrong;
    } catch (const RanksDisagree& error) {
      const absl::string_view message = error.status.message();
      num_wrong += message == "base weights: block 2 is not the next of the plan" ? 0 : 1;
    }
    blocks.EndPlan();
    return num_wrong;
  });
  CHECK(ranks == std::vector<int>(world));
}

TEST_CASE("FsdpUnits: a lost rank ends the others, a block outside is refused", "[layers]") {
  FlightRecorder recorder;
  auto ranks = MakeLocalCollectives("fsdp", 2, {.timeout = kTestPatience}, recorder);
  FsdpUnits blocks(SizesOf(64), at::kCPU, RankGroup(*ranks[0]));
  CHECK_THROWS_AS(blocks.Unshard(kNumBlocks), c10::Error);
  CHECK_THROWS_AS(blocks.Unshard(0, 2), c10::Error);  // both use the same buffer
  ranks[1].reset();
  CHECK_THROWS_AS(blocks.Unshard(0, 1), RanksDisagree);
}

}  // namespace
}  // namespace lathe::worker
