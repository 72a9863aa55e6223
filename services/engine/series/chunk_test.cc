#include "services/engine/series/chunk.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lathe::engine {
namespace {

std::vector<Point> Ramp(int64_t count) {
  std::vector<Point> points;
  for (int64_t i = 0; i < count; ++i) {
    points.push_back({.step = i, .unix_ms = 1000 + i, .value = static_cast<double>(i)});
  }
  return points;
}

TEST_CASE("Chunk: points are read as they were written", "[series]") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<Point> points = {
      {.step = 0, .unix_ms = 0, .value = 0.0},
      {.step = 0, .unix_ms = -5, .value = -1e308},
      {.step = 7, .unix_ms = kMost, .value = std::numeric_limits<double>::denorm_min()},
      {.step = kMost, .unix_ms = 1'700'000'000'000, .value = 0.1}};
  const auto read = UnpackPoints(PackPoints(points));
  REQUIRE(read.ok());
  CHECK(*read == points);
  CHECK(UnpackPoints(PackPoints({}))->empty());
}

TEST_CASE("Chunk: 512 regular points take less than 6 KiB", "[series]") {
  CHECK(PackPoints(Ramp(kChunkPoints)).size() < 6 * 1024);
}

TEST_CASE("Chunk: bytes that are cut or longer are refused", "[series]") {
  const std::string bytes = PackPoints(Ramp(3));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(UnpackPoints(bytes.substr(0, size)).ok());
  }
  CHECK_FALSE(UnpackPoints(bytes + "x").ok());
  CHECK_FALSE(UnpackPoints("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").ok());
  CHECK_FALSE(UnpackBuckets(bytes, 1).ok());
}

TEST_CASE("Chunk: buckets keep spikes, and means weigh by points", "[series]") {
  std::vector<Point> points = Ramp(20);
  points[5].value = 1000;
  points[6].value = -1000;
  const std::vector<Bucket> joined = Join(ToBuckets(points), kLevelRatio);
  REQUIRE(joined.size() == 3);
  CHECK(joined[0].max == 1000);
  CHECK(joined[0].min == -1000);
  CHECK(joined[0].count == 8);
  CHECK(joined[0].last == 7);
  CHECK(joined[0].step == 7);
  CHECK(joined[0].unix_ms == 1007);
  CHECK(joined[1].mean == Approx(11.5));
  CHECK(joined[2].count == 4);
  const std::vector<Bucket> all = Join(joined, 3);
  REQUIRE(all.size() == 1);
  CHECK(all[0].count == 20);
  CHECK(all[0].mean == Approx((190.0 - 5 - 6) / 20));
}

TEST_CASE("Chunk: the mean of the largest numbers is finite", "[series]") {
  constexpr double kLargest = std::numeric_limits<double>::max();
  std::vector<Point> points = Ramp(8);
  for (Point& point : points) point.value = kLargest;
  CHECK(Join(ToBuckets(points), 8)[0].mean == Approx(kLargest));
}

TEST_CASE("Chunk: buckets of a level are read as they were written", "[series]") {
  const std::vector<Bucket> level1 = Join(ToBuckets(Ramp(64)), kLevelRatio);
  const auto read = UnpackBuckets(PackBuckets(level1), 1);
  REQUIRE(read.ok());
  CHECK(*read == level1);
}

TEST_CASE("Chunk: a downsampled curve has at most the requested buckets", "[series]") {
  const std::vector<Bucket> buckets = ToBuckets(Ramp(1000));
  for (const int64_t max : {1, 7, 333, 999, 1000, 5000}) {
    const std::vector<Bucket> few = Downsample(buckets, max);
    CHECK(static_cast<int64_t>(few.size()) <= max);
    int64_t count = 0;
    for (const Bucket& bucket : few) count += bucket.count;
    CHECK(count == 1000);
    CHECK(few.back().step == 999);
  }
}

TEST_CASE("Chunk: points of one step become one bucket", "[series]") {
  const std::vector<Point> points = {{.step = 1, .unix_ms = 1, .value = 2},
                                     {.step = 1, .unix_ms = 2, .value = 4},
                                     {.step = 2, .unix_ms = 3, .value = 9}};
  const std::vector<Bucket> steps = Downsample(ToBuckets(points), 10);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].count == 2);
  CHECK(steps[0].mean == 3);
  CHECK(steps[0].last == 4);
  CHECK(steps[1].count == 1);
}

TEST_CASE("Chunk: levels have the buckets of full chunks below them", "[series]") {
  CHECK(BucketsInChunks(0, 1024) == 1024);
  CHECK(BucketsInChunks(1, 1024) == 128);
  CHECK(BucketsInChunks(2, 1024) == 0);
  CHECK(BucketsInChunks(2, 4096) == 64);
  CHECK(BucketsInChunks(2, 4096 + 512) == 64);
  CHECK(BucketsInChunks(3, 8 * 4096) == 64);
}

}  // namespace
}  // namespace lathe::engine
