// Packed points and buckets, as the store keeps them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/series/points.h"

namespace lathe::engine {

// Number of points or buckets in a full chunk.
inline constexpr int64_t kChunkPoints = 512;
// Number of buckets of one level that make one bucket of the next.
inline constexpr int64_t kLevelRatio = 8;
// Highest level: its buckets have 32,768 points.
inline constexpr int64_t kTopLevel = 5;

// Returns the number of points of one bucket of `level`.
constexpr int64_t PointsOfBucket(int64_t level) { return int64_t{1} << (3 * level); }

// Returns the number of buckets of `level` that are in chunks, when `num_sealed` points are. A
// level gets the buckets of a chunk of the level below once that chunk is full.
constexpr int64_t BucketsInChunks(int64_t level, int64_t num_sealed) {
  int64_t num_buckets = num_sealed;
  for (int64_t i = 0; i < level; ++i) {
    num_buckets = num_buckets / kChunkPoints * (kChunkPoints / kLevelRatio);
  }
  return num_buckets;
}

// Points in their order: steps and times as differences, values as they are.
std::string PackPoints(std::span<const Point> points);
// Returns DataLoss for bytes that PackPoints did not make.
absl::StatusOr<std::vector<Point>> UnpackPoints(std::string_view bytes);

// Buckets of one level above 0.
std::string PackBuckets(std::span<const Bucket> buckets);
absl::StatusOr<std::vector<Bucket>> UnpackBuckets(std::string_view bytes, int64_t level);

std::vector<Bucket> ToBuckets(std::span<const Point> points);
// Joins each `group` consecutive buckets; the last one may have fewer.
std::vector<Bucket> Join(std::span<const Bucket> buckets, int64_t group);
// Joins neighbours until there are at most `max_buckets`. Buckets of one step become one first.
std::vector<Bucket> Downsample(std::span<const Bucket> buckets, int64_t max_buckets);

}  // namespace lathe::engine
