#include "tools/lathe/metrics_log/metrics_log.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxMetricNameBytes = 64;
// A longer line is no line of metrics; what is read at once stays small.
constexpr size_t kMaxLogLine = 1 << 20;
constexpr std::string_view kStepMember = "step";

bool MayBeInName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./:-").find(c) != std::string_view::npos;
}

std::string MetricNameOf(std::string name) {
  name.resize(std::min(name.size(), kMaxMetricNameBytes));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !MayBeInName(c); }, '_');
  return name;
}

}  // namespace

std::vector<LogPoint> PointsOfLine(std::string_view line) {
  const absl::StatusOr<Json> json = ParseJson(line, "the line");
  if (!json.ok() || !json->is_object()) return {};
  const auto step = json->find(std::string(kStepMember));
  if (step == json->end() || !step->is_number_integer() || step->get<double>() < 0) return {};
  std::vector<LogPoint> points;
  for (const auto& [name, value] : json->items()) {
    if (name == kStepMember || name.empty() || !value.is_number()) continue;
    const auto number = value.get<double>();
    if (!std::isfinite(number)) continue;
    points.push_back({.name = MetricNameOf(name), .value = number, .step = step->get<int64_t>()});
  }
  return points;
}

fs::path MetricsFileOf(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? path : path / "metrics.jsonl";
}

absl::StatusOr<std::vector<std::string>> LogTail::Read(size_t max_lines) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path_, error);
  if (error) {
    if (error == std::errc::no_such_file_or_directory) return std::vector<std::string>();
    return absl::UnavailableError(
        absl::StrCat("cannot read '", path_.string(), "': ", error.message()));
  }
  if (size < offset_) offset_ = 0;
  if (size == offset_) return std::vector<std::string>();
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset_));
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < max_lines && std::getline(file, line)) {
    // A program is still writing the last line.
    if (file.eof()) break;
    offset_ += line.size() + 1;
    if (line.size() <= kMaxLogLine) lines.push_back(std::move(line));
  }
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read '", path_.string(), "'"));
  return lines;
}

PointFilter::PointFilter(const Json& heads) {
  const auto series = heads.find("series");
  if (series == heads.end() || !series->is_array()) return;
  for (const Json& one : *series) {
    const absl::StatusOr<std::string> name = JsonString(one, "name");
    const absl::StatusOr<int64_t> last_step = JsonInt(one, "last_step");
    if (name.ok() && last_step.ok()) last_steps_[*name] = *last_step;
  }
}

std::vector<LogPoint> PointFilter::Keep(std::vector<LogPoint> points) const {
  std::map<std::string, int64_t> last_steps;
  std::erase_if(points, [&](const LogPoint& point) {
    if (left_out_.contains(point.name)) return true;
    auto last = last_steps.find(point.name);
    if (last == last_steps.end()) {
      const auto known = last_steps_.find(point.name);
      const int64_t step = known == last_steps_.end() ? 0 : known->second;
      last = last_steps.emplace(point.name, step).first;
    }
    if (point.step < last->second) return true;
    last->second = point.step;
    return false;
  });
  return points;
}

void PointFilter::Took(const std::vector<LogPoint>& points) {
  for (const LogPoint& point : points) last_steps_[point.name] = point.step;
}

Json BodyOf(const std::vector<LogPoint>& points) {
  Json list = Json::array();
  for (const LogPoint& point : points) {
    list.push_back({{"name", point.name}, {"value", point.value}, {"step", point.step}});
  }
  return {{"points", std::move(list)}};
}

int64_t RefusedIndex(std::string_view refusal) {
  constexpr std::string_view kField = "points[";
  const size_t begin = refusal.find(kField);
  if (begin == std::string_view::npos) return -1;
  const std::string_view rest = refusal.substr(begin + kField.size());
  const size_t end = rest.find(']');
  int64_t index = -1;
  if (end == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(rest.substr(0, end)), &index)) {
    return -1;
  }
  return index;
}

}  // namespace lathe::cli
