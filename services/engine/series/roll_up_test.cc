#include "services/engine/series/roll_up.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "services/engine/series/chunk.h"

namespace lathe::engine {
namespace {

// Chunks as a store keeps them.
struct Stored {
  std::map<std::tuple<int64_t, int64_t>, SeriesChunkRow> chunks;  // by level and number

  ReadChunk Reader() {
    return [this](const std::string&, int64_t level,
                  int64_t number) -> absl::StatusOr<std::optional<SeriesChunkRow>> {
      const auto found = chunks.find({level, number});
      if (found == chunks.end()) return std::nullopt;
      return found->second;
    };
  }
  void Put(const std::vector<SeriesChunkRow>& rows) {
    for (const SeriesChunkRow& row : rows) chunks[{row.level, row.number}] = row;
  }
  int64_t NumBuckets(int64_t level) const {
    int64_t count = 0;
    for (const auto& [key, row] : chunks) count += row.level == level ? row.num_buckets : 0;
    return count;
  }
};

SeriesChunkRow FullChunk(int64_t number) {
  std::vector<Point> points;
  for (int64_t i = number * kChunkPoints; i < (number + 1) * kChunkPoints; ++i) {
    points.push_back({.step = i, .unix_ms = i, .value = static_cast<double>(i)});
  }
  return {.run_id = "r",
          .name = "n",
          .level = 0,
          .number = number,
          .first_step = points.front().step,
          .last_step = points.back().step,
          .num_buckets = kChunkPoints,
          .bytes = PackPoints(points)};
}

SeriesChunkRow ChunkAt(int64_t level, int64_t number) {
  SeriesChunkRow row;
  row.name = "n";
  row.level = level;
  row.number = number;
  return row;
}

TEST_CASE("RollUp: each level has an eighth of the buckets below, one fold or many", "[series]") {
  constexpr int64_t kChunks = 70;
  Stored one_by_one;
  for (int64_t i = 0; i < kChunks; ++i) {
    const auto rows = RollUp({FullChunk(i)}, one_by_one.Reader());
    REQUIRE(rows.ok());
    one_by_one.Put(*rows);
  }
  std::vector<SeriesChunkRow> all;
  for (int64_t i = 0; i < kChunks; ++i) all.push_back(FullChunk(i));
  Stored at_once;
  at_once.Put(*RollUp(all, at_once.Reader()));
  for (const Stored* stored : {&one_by_one, &at_once}) {
    for (int64_t level = 0; level <= kTopLevel; ++level) {
      CHECK(stored->NumBuckets(level) == BucketsInChunks(level, kChunks * kChunkPoints));
    }
  }
  for (const auto& [key, row] : one_by_one.chunks) {
    CHECK(at_once.chunks.at(key).bytes == row.bytes);
    CHECK(at_once.chunks.at(key).first_step == row.first_step);
  }
  const auto buckets = UnpackBuckets(one_by_one.chunks.at({2, 0}).bytes, 2);
  REQUIRE(buckets.ok());
  CHECK(buckets->at(1).min == 64);
  CHECK(buckets->at(1).max == 127);
  CHECK(buckets->at(1).mean == Approx(95.5));
  CHECK(one_by_one.chunks.at({2, 0}).first_step == 0);
}

TEST_CASE("RollUp: a repeated fold makes the same chunks", "[series]") {
  Stored stored;
  for (int64_t i = 0; i < 12; ++i) stored.Put(*RollUp({FullChunk(i)}, stored.Reader()));
  const Stored before = stored;
  stored.Put(*RollUp({FullChunk(11)}, stored.Reader()));
  for (const auto& [key, row] : before.chunks) CHECK(stored.chunks.at(key).bytes == row.bytes);
}

TEST_CASE("RollUp: a damaged chunk is an error", "[series]") {
  Stored stored;
  stored.Put(*RollUp({FullChunk(0)}, stored.Reader()));
  stored.chunks.at({1, 0}).bytes = "x";
  CHECK(absl::IsDataLoss(RollUp({FullChunk(1)}, stored.Reader()).status()));
}

TEST_CASE("RollUp: old chunks go, later from the levels above", "[series]") {
  const int64_t keep = 16 * kChunkPoints;
  const SeriesChunkRow level0 = ChunkAt(/*level=*/0, /*number=*/40);
  const SeriesChunkRow level1 = ChunkAt(/*level=*/1, /*number=*/5);
  const SeriesChunkRow level2 = ChunkAt(/*level=*/2, /*number=*/0);
  const std::vector<DroppedChunks> dropped = ChunksToDrop({level0, level1, level2}, keep);
  REQUIRE(dropped.size() == 2);
  CHECK(dropped[0].level == 0);
  CHECK(dropped[0].before_number == 40 - 16 + 1);
  CHECK(dropped[1].level == 1);
  CHECK(dropped[1].before_number == 5 - 4 + 1);
}

}  // namespace
}  // namespace lathe::engine
