#include "services/engine/rpc/validate_metrics.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/validation.h"
#include "services/engine/series/metric_names.h"

namespace lathe::engine {
namespace {

// Clocks of clients may be ahead by so much.
constexpr absl::Duration kMaxAhead = absl::Hours(1);

constexpr size_t kMaxGroupBytes = 256;

constexpr char kNameForm[] = "1 to 64 characters of A-Z a-z 0-9 _ . / : -";

// Returns the beginning of a client's text, with unprintable characters escaped.
std::string ShownName(const std::string& name) {
  return absl::CHexEscape(name.substr(0, kMaxShownBytes));
}

std::string PointField(int index, const char* member) {
  return absl::StrFormat("points[%d].%s", index, member);
}

absl::StatusOr<int64_t> ValidateTime(const v1::MetricPoint& point, int index, int64_t now) {
  if (!point.has_time()) return now / 1'000'000;
  const google::protobuf::Timestamp& time = point.time();
  const absl::Time at = absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
  const absl::Time latest = absl::FromUnixNanos(now) + kMaxAhead;
  if (at < absl::UnixEpoch() || at > latest) {
    return Invalid(
        "bad_time", PointField(index, "time"),
        absl::StrFormat("time of points[%d] is %s, expected 1970 to %s, an hour ahead of "
                        "the server",
                        index, absl::FormatTime(at, absl::UTCTimeZone()),
                        absl::FormatTime(latest, absl::UTCTimeZone())));
  }
  return absl::ToUnixMillis(at);
}

absl::StatusOr<NamedPoint> ValidatePoint(const v1::MetricPoint& point, int index, int64_t now) {
  if (!IsMetricName(point.name())) {
    return Invalid("bad_metric_name", PointField(index, "name"),
                   absl::StrFormat("name of points[%d] is '%s' (%d bytes), expected %s", index,
                                   ShownName(point.name()), point.name().size(), kNameForm));
  }
  if (!std::isfinite(point.value())) {
    return Invalid("bad_value", PointField(index, "value"),
                   absl::StrFormat("value of points[%d], '%s', is %g, expected a finite number",
                                   index, point.name(), point.value()));
  }
  if (point.step() < 0) {
    return Invalid("bad_step", PointField(index, "step"),
                   absl::StrFormat("step of points[%d], '%s', is %d, minimum is 0", index,
                                   point.name(), point.step()));
  }
  ASSIGN_OR_RETURN(const int64_t unix_ms, ValidateTime(point, index, now));
  return NamedPoint{
      .name = point.name(), .value = point.value(), .step = point.step(), .unix_ms = unix_ms};
}

}  // namespace

absl::StatusOr<PointEntry> ValidatePoints(const v1::AppendMetricsRequest& request, int64_t now) {
  if (request.points_size() < 1 || request.points_size() > kMaxPointsPerCall) {
    return Invalid("bad_points", "points",
                   absl::StrFormat("points has %d elements, expected 1 to %d",
                                   request.points_size(), kMaxPointsPerCall));
  }
  PointEntry entry;
  entry.run_id = request.training_run_id();
  entry.kind = EntryKind::kUsers;
  entry.unix_ms = now / 1'000'000;
  for (int i = 0; i < request.points_size(); ++i) {
    ASSIGN_OR_RETURN(NamedPoint point, ValidatePoint(request.points(i), i, now));
    entry.points.push_back(std::move(point));
  }
  return entry;
}

template <typename Request>
absl::Status ValidatePatterns(const Request& request) {
  if (request.names_size() > kMaxPatterns) {
    return Invalid(
        "bad_metric_name", "names",
        absl::StrFormat("names has %d elements, limit is %d", request.names_size(), kMaxPatterns));
  }
  for (const std::string& pattern : request.names()) {
    if (IsMetricPattern(pattern)) continue;
    return Invalid("bad_metric_name", "names",
                   absl::StrFormat("names has '%s' (%d bytes), expected %s and *",
                                   ShownName(pattern), pattern.size(), kNameForm));
  }
  return absl::OkStatus();
}

absl::Status ValidateMachineQuery(const v1::QueryMachineRequest& request) {
  RETURN_IF_ERROR(ValidatePatterns(request));
  if (request.group().size() > kMaxGroupBytes || request.group().find('\0') != std::string::npos) {
    return Invalid("bad_group", "group",
                   absl::StrFormat("group has %d bytes, limit is %d without a zero",
                                   request.group().size(), kMaxGroupBytes));
  }
  if (request.has_seconds() &&
      (request.seconds() < kMinMachineSeconds || request.seconds() > kMaxMachineSeconds)) {
    return Invalid("bad_range", "seconds",
                   absl::StrFormat("seconds is %d, expected %d to %d", request.seconds(),
                                   kMinMachineSeconds, kMaxMachineSeconds));
  }
  if (request.has_max_buckets() &&
      (request.max_buckets() < 1 || request.max_buckets() > kMaxBuckets)) {
    return Invalid(
        "bad_points", "points",
        absl::StrFormat("points is %d, expected 1 to %d", request.max_buckets(), kMaxBuckets));
  }
  return absl::OkStatus();
}

absl::Status ValidateQuery(const v1::QueryMetricsRequest& request) {
  RETURN_IF_ERROR(ValidatePatterns(request));
  if (request.has_from_step() && request.has_to_step() && request.from_step() > request.to_step()) {
    return Invalid("bad_range", "from_step",
                   absl::StrFormat("from_step is %d, to_step is %d: expected at most that",
                                   request.from_step(), request.to_step()));
  }
  if (request.has_max_buckets() &&
      (request.max_buckets() < 0 || request.max_buckets() > kMaxBuckets)) {
    return Invalid(
        "bad_points", "points",
        absl::StrFormat("points is %d, expected 0 to %d", request.max_buckets(), kMaxBuckets));
  }
  return absl::OkStatus();
}

}  // namespace lathe::engine
