// Reads the points of a series at a bounded resolution.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/series/points.h"
#include "services/engine/series/run_series.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Steps of the points that are read, both included.
struct StepRange {
  int64_t from = std::numeric_limits<int64_t>::min();
  int64_t to = std::numeric_limits<int64_t>::max();
};

struct SeriesBuckets {
  int64_t level = 0;  // level of the chunks that were read; 0: points
  std::vector<Bucket> buckets;
};

// Returns at most `max_buckets` buckets of a series whose tail is loaded. Reads a few times as many
// from the store, of the finest level that has no more in the range. What retention has removed
// from that level comes from the levels above.
absl::StatusOr<SeriesBuckets> ReadBuckets(Store& store, const Series& series,
                                          const StepRange& range, int64_t max_buckets);

}  // namespace lathe::engine
