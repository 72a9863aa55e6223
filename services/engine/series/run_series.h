// The series of one run in memory: applies batches of the journal and makes chunks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/engine/series/points.h"
#include "services/engine/store/series_rows.h"

namespace lathe::engine {

// One metric. `row.tail` is empty: its points are in `tail`.
struct Series {
  SeriesRow row;
  std::vector<Point> tail;
  bool is_changed = false;
};

// State of a run's series at one place of the journal. Applying the same batch again changes
// nothing, so a batch that survived a crash may come twice. Not thread-safe.
class RunSeries {
 public:
  struct Counts {
    int64_t num_kept = 0;
    int64_t num_dropped = 0;  // no room for a new series, not finite, a bad name or an old step
  };

  explicit RunSeries(RunSeriesRow row) : row_(std::move(row)) {}
  // DataLoss if the tail of the row is damaged.
  absl::Status Add(SeriesRow row);

  // Applies the run's part of a batch. `max_series`: number of series that the run may have. With
  // `only`, all other metrics are left alone.
  Counts Apply(const RunBatch& batch, int64_t max_series, const std::string* only = nullptr);
  // Moves full chunks out of the tails. At least one point stays in each tail, because the newest
  // may be replaced.
  std::vector<SeriesChunkRow> Seal();
  // Points of one metric. `row` is valid until the series change.
  struct NewPoints {
    const SeriesRow* row = nullptr;
    std::vector<Point> points;
  };
  // Returns the points that the tails have, and empties the tails. For a reader that was given
  // heads, and wants what was applied since the last call.
  std::vector<NewPoints> TakePoints();
  // Returns the rows of the series that have changed since the last call.
  std::vector<SeriesRow> TakeChanged();

  RunSeriesRow& row() { return row_; }
  const RunSeriesRow& row() const { return row_; }
  const std::map<std::string, Series>& series() const { return series_; }
  // Approximate memory.
  int64_t bytes() const;

 private:
  // Returns null when the run may not have one more.
  Series* FindOrAdd(const std::string& name, EntryKind kind, int64_t max_series);
  bool Append(Series& series, EntryKind kind, const Point& point) const;

  RunSeriesRow row_;
  std::map<std::string, Series> series_;  // by name
};

}  // namespace lathe::engine
