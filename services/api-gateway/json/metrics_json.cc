#include "services/api-gateway/json/metrics_json.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

// Appends the shortest text that reads back as the same number.
template <typename Number>
void AppendNumber(std::string& out, Number number) {
  constexpr size_t kLongest = 32;
  std::array<char, kLongest> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  out.append(text.data(), end);
}

template <typename List>
void AppendList(std::string& out, const char* name, const List& numbers) {
  out.append(",\"").append(name).append("\":[");
  bool is_first = true;
  for (const auto number : numbers) {
    if (!is_first) out.push_back(',');
    is_first = false;
    AppendNumber(out, number);
  }
  out.push_back(']');
}

void AppendText(std::string& out, const char* name, const std::string& text) {
  out.append("\"").append(name).append("\":").append(JsonText(Json(text)));
}

template <typename Number>
void AppendMember(std::string& out, const char* name, Number number) {
  out.append(",\"").append(name).append("\":");
  AppendNumber(out, number);
}

void AppendSeries(std::string& out, const v1::MetricSeries& series, bool has_buckets) {
  out.push_back('{');
  AppendText(out, "name", series.name());
  out.push_back(',');
  AppendText(out, "unit", series.unit());
  AppendMember(out, "count", series.count());
  AppendMember(out, "last_step", series.last_step());
  AppendMember(out, "last_value", series.last_value());
  out.push_back(',');
  AppendText(out, "last_time", TimestampText(series.last_time()));
  if (has_buckets) {
    AppendMember(out, "level", series.level());
    AppendList(out, "steps", series.steps());
    AppendList(out, "times_ms", series.times_ms());
    AppendList(out, "min", series.min());
    AppendList(out, "max", series.max());
    AppendList(out, "mean", series.mean());
    AppendList(out, "counts", series.counts());
  }
  out.push_back('}');
}

void AppendAll(std::string& out, const v1::QueryMetricsResponse& response, bool has_buckets) {
  out.append("\"series\":[");
  for (int i = 0; i < response.series_size(); ++i) {
    if (i > 0) out.push_back(',');
    AppendSeries(out, response.series(i), has_buckets);
  }
  out.append("],\"more_names\":").append(response.more_names() ? "true" : "false").append("}");
}

}  // namespace

Json AppendedToJson(const v1::AppendMetricsResponse& response) {
  return {{"num_points", response.num_points()}};
}

std::string MetricsToJson(const v1::QueryMetricsResponse& response, bool has_buckets) {
  std::string out = "{";
  AppendText(out, "run_id", response.training_run_id());
  out.push_back(',');
  AppendAll(out, response, has_buckets);
  return out;
}

std::string MachineMetricsToJson(const v1::QueryMetricsResponse& response) {
  std::string out = "{";
  AppendAll(out, response, /*has_buckets=*/true);
  return out;
}

}  // namespace lathe::gateway
