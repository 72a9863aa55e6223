// Reads the metrics.jsonl of a training program while it grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/common/json/json.h"

namespace lathe::cli {

struct LogPoint {
  std::string name;
  double value = 0;
  int64_t step = 0;
};

// Returns the finite numbers of one line, a JSON object with a member `step`; lists, texts and null
// are left out. Empty for a line without a step, or one that is not JSON. A character that no name
// may have becomes `_`, and a name is cut after 64 characters.
std::vector<LogPoint> PointsOfLine(std::string_view line);

// Returns the file of a log folder, or `path` itself if it is a file.
std::filesystem::path MetricsFileOf(const std::filesystem::path& path);

// Reads the lines of a file that are complete, from where the last call has ended. A file that is
// shorter than before is read from its beginning.
class LogTail {
 public:
  explicit LogTail(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns at most `max_lines` lines; none if the file is absent. Unavailable if it cannot be
  // read.
  absl::StatusOr<std::vector<std::string>> Read(size_t max_lines);

 private:
  const std::filesystem::path path_;
  std::uintmax_t offset_ = 0;
};

// Decides which points the server does not have yet.
class PointFilter {
 public:
  // `heads`: an answer of GET metrics with points=0.
  explicit PointFilter(const Json& heads);

  // Removes points that are behind the newest one of their metric, and metrics that are left out.
  std::vector<LogPoint> Keep(std::vector<LogPoint> points) const;
  // Records points that the server has taken.
  void Took(const std::vector<LogPoint>& points);
  // Leaves a metric out from now on.
  void LeaveOut(const std::string& name) { left_out_.insert(name); }

 private:
  std::map<std::string, int64_t> last_steps_;  // by name
  std::set<std::string> left_out_;
};

// Returns the body of a call that appends the points.
Json BodyOf(const std::vector<LogPoint>& points);

// Returns the index of the point that a refusal names, such as "points[3].name"; -1: none.
int64_t RefusedIndex(std::string_view refusal);

}  // namespace lathe::cli
