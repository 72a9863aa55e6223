// Validation of the calls of lathe.v1.Metrics.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protos/lathe/v1/metrics.pb.h"
#include "services/engine/series/points.h"

namespace lathe::engine {

inline constexpr int kMaxPointsPerCall = 1000;
inline constexpr int kMaxPatterns = 64;
// Metrics with buckets in one answer.
inline constexpr int kMaxSeriesPerAnswer = 64;
inline constexpr int64_t kMaxBuckets = 2000;
inline constexpr int64_t kDefaultBuckets = 800;

// Returns the points of a call with a time for each. `now` is in nanoseconds since the Unix epoch.
// Errors, which name the point's index, the value and the bound: bad_points, bad_metric_name,
// bad_value, bad_step, bad_time.
absl::StatusOr<PointEntry> ValidatePoints(const v1::AppendMetricsRequest& request, int64_t now);

// Errors: bad_metric_name for a pattern, bad_range for steps, bad_points for the number of buckets.
absl::Status ValidateQuery(const v1::QueryMetricsRequest& request);

inline constexpr int64_t kMinMachineSeconds = 60;
inline constexpr int64_t kMaxMachineSeconds = int64_t{400} * 24 * 3600;
inline constexpr int64_t kDefaultMachineSeconds = 3600;
inline constexpr int64_t kDefaultMachineBuckets = 240;
// Errors as those of ValidateQuery.
absl::Status ValidateMachineQuery(const v1::QueryMachineRequest& request);

}  // namespace lathe::engine
