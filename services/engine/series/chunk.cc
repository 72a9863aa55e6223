#include "services/engine/series/chunk.h"

#include <algorithm>

#include "services/engine/series/packing.h"

namespace lathe::engine {
namespace {

absl::Status Damaged() { return absl::DataLossError("a chunk of a metric is damaged"); }

Bucket JoinAll(std::span<const Bucket> buckets) {
  Bucket joined = buckets.front();
  for (const Bucket& next : buckets.subspan(1)) {
    joined.min = std::min(joined.min, next.min);
    joined.max = std::max(joined.max, next.max);
    // A weighted mean of finite values cannot overflow; a sum could.
    const double weight =
        static_cast<double>(next.count) / static_cast<double>(joined.count + next.count);
    joined.mean = joined.mean * (1 - weight) + next.mean * weight;
    joined.count += next.count;
    joined.last = next.last;
    joined.step = next.step;
    joined.unix_ms = next.unix_ms;
  }
  return joined;
}

// Packs the number of items and their places.
template <typename Item>
void PackPlaces(Packer& packer, std::span<const Item> items) {
  packer.Varint(items.size());
  uint64_t step = 0;
  uint64_t unix_ms = 0;
  for (const Item& item : items) {
    packer.Signed(static_cast<int64_t>(static_cast<uint64_t>(item.step) - step));
    packer.Signed(static_cast<int64_t>(static_cast<uint64_t>(item.unix_ms) - unix_ms));
    step = static_cast<uint64_t>(item.step);
    unix_ms = static_cast<uint64_t>(item.unix_ms);
  }
}

template <typename Item>
std::vector<Item> UnpackPlaces(Unpacker& unpacker) {
  std::vector<Item> items;
  const uint64_t count = unpacker.Varint();
  uint64_t step = 0;
  uint64_t unix_ms = 0;
  for (uint64_t i = 0; i < count && unpacker.ok(); ++i) {
    Item& item = items.emplace_back();
    step += static_cast<uint64_t>(unpacker.Signed());
    unix_ms += static_cast<uint64_t>(unpacker.Signed());
    item.step = static_cast<int64_t>(step);
    item.unix_ms = static_cast<int64_t>(unix_ms);
  }
  return items;
}

}  // namespace

std::string PackPoints(std::span<const Point> points) {
  std::string bytes;
  Packer packer(bytes);
  PackPlaces(packer, points);
  for (const Point& point : points) packer.Double(point.value);
  return bytes;
}

absl::StatusOr<std::vector<Point>> UnpackPoints(std::string_view bytes) {
  Unpacker unpacker(bytes);
  std::vector<Point> points = UnpackPlaces<Point>(unpacker);
  for (Point& point : points) point.value = unpacker.Double();
  if (!unpacker.ok() || !unpacker.at_end()) return Damaged();
  return points;
}

std::string PackBuckets(std::span<const Bucket> buckets) {
  std::string bytes;
  Packer packer(bytes);
  PackPlaces(packer, buckets);
  for (const Bucket& bucket : buckets) {
    packer.Double(bucket.min);
    packer.Double(bucket.max);
    packer.Double(bucket.mean);
    packer.Double(bucket.last);
  }
  return bytes;
}

absl::StatusOr<std::vector<Bucket>> UnpackBuckets(std::string_view bytes, int64_t level) {
  Unpacker unpacker(bytes);
  std::vector<Bucket> buckets = UnpackPlaces<Bucket>(unpacker);
  for (Bucket& bucket : buckets) {
    bucket.min = unpacker.Double();
    bucket.max = unpacker.Double();
    bucket.mean = unpacker.Double();
    bucket.last = unpacker.Double();
    bucket.count = PointsOfBucket(level);
  }
  if (!unpacker.ok() || !unpacker.at_end()) return Damaged();
  return buckets;
}

std::vector<Bucket> ToBuckets(std::span<const Point> points) {
  std::vector<Bucket> buckets;
  buckets.reserve(points.size());
  for (const Point& point : points) {
    buckets.push_back({.step = point.step,
                       .unix_ms = point.unix_ms,
                       .min = point.value,
                       .max = point.value,
                       .mean = point.value,
                       .last = point.value,
                       .count = 1});
  }
  return buckets;
}

std::vector<Bucket> Join(std::span<const Bucket> buckets, int64_t group) {
  std::vector<Bucket> joined;
  const auto size = static_cast<size_t>(group);
  for (size_t begin = 0; begin < buckets.size(); begin += size) {
    joined.push_back(JoinAll(buckets.subspan(begin, std::min(size, buckets.size() - begin))));
  }
  return joined;
}

std::vector<Bucket> Downsample(std::span<const Bucket> buckets, int64_t max_buckets) {
  std::vector<Bucket> steps;
  for (size_t begin = 0; begin < buckets.size();) {
    size_t end = begin + 1;
    while (end < buckets.size() && buckets[end].step == buckets[begin].step) ++end;
    steps.push_back(JoinAll(buckets.subspan(begin, end - begin)));
    begin = end;
  }
  const auto count = static_cast<int64_t>(steps.size());
  if (count <= max_buckets) return steps;
  return Join(steps, (count + max_buckets - 1) / max_buckets);
}

}  // namespace lathe::engine
