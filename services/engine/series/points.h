// Points of metrics on their way into series.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::engine {

// One value of a metric.
struct Point {
  int64_t step = 0;
  int64_t unix_ms = 0;
  double value = 0;
  bool operator==(const Point&) const = default;
};

// Several consecutive points of a metric. `step` and `unix_ms` are those of the last one.
struct Bucket {
  int64_t step = 0;
  int64_t unix_ms = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  double last = 0;
  int64_t count = 1;
  bool operator==(const Bucket&) const = default;
};

struct NamedPoint {
  std::string name;
  double value = 0;
  int64_t step = 0;     // of users' points; the step of a result follows from its run
  int64_t unix_ms = 0;  // of users' points; the others have the time of their entry
};

enum class EntryKind {
  // A user's points. A point of the newest step replaces it.
  kUsers = 1,
  // Numbers of one result, at the run's current step. A step may have several results.
  kResult = 2,
  // Numbers of an optim_step, at the run's current step, which ends with them.
  kOptimStep = 3,
  // Counts that are added to the last values of their series, at the run's current step.
  kCounts = 4,
};

// Numbers of one run that become durable together.
struct PointEntry {
  std::string run_id;
  std::string tenant_id;
  EntryKind kind = EntryKind::kResult;
  int64_t unix_ms = 0;
  std::vector<NamedPoint> points;
};

using PointEntryPtr = std::shared_ptr<const PointEntry>;

// All entries of one run in one batch of the journal.
struct RunBatch {
  int64_t journal_id = 0;
  std::vector<PointEntryPtr> entries;
};

// Series that are not a run's have names with this prefix in place of its id.
inline constexpr std::string_view kMachinePrefix = "machine:";
// Points of such a series that stay as they are: about nine days. Older ones are in buckets.
inline constexpr int64_t kMachineKeepPoints = 50'000;

// Approximate memory that an entry takes.
inline int64_t MemoryOf(const PointEntry& entry) {
  constexpr int64_t kEntryBytes = 256;
  constexpr int64_t kPointBytes = 80;
  int64_t bytes = kEntryBytes + kPointBytes * static_cast<int64_t>(entry.points.size());
  for (const NamedPoint& point : entry.points) bytes += static_cast<int64_t>(point.name.size());
  return bytes;
}

}  // namespace lathe::engine
