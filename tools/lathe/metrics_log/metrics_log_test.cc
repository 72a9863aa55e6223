#include "tools/lathe/metrics_log/metrics_log.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lathe::cli {
namespace {

struct LogFile {
  LogFile() {
    std::string dir = (std::filesystem::temp_directory_path() / "metrics_XXXXXX").string();
    REQUIRE(mkdtemp(dir.data()) != nullptr);
    path = std::filesystem::path(dir) / "metrics.jsonl";
  }
  ~LogFile() { std::filesystem::remove_all(path.parent_path()); }
  void Write(const std::string& text, std::ios::openmode mode = std::ios::app) const {
    std::ofstream(path, mode) << text;
  }

  std::filesystem::path path;
};

TEST_CASE("Metrics log: a line gives its finite numbers", "[cli]") {
  const std::vector<LogPoint> points = PointsOfLine(
      R"({"step": 4, "env/all/reward": 0.5, "n": 3, "text": "x", "none": null, "list": [1]})");
  REQUIRE(points.size() == 2);
  CHECK(points[0].name == "env/all/reward");
  CHECK(points[0].value == 0.5);
  CHECK(points[0].step == 4);
  CHECK(points[1].name == "n");
  CHECK(points[1].value == 3);
}

TEST_CASE("Metrics log: lines without a step or of another kind are left out", "[cli]") {
  for (const char* const line :
       {"", "{", "[1]", R"({"a": 1})", R"({"step": -1, "a": 1})", R"({"step": 1.5, "a": 1})",
        R"({"step": "1", "a": 1})", R"({"step": 1, "a": NaN})"}) {
    CHECK(PointsOfLine(line).empty());
  }
}

TEST_CASE("Metrics log: names become those that the server takes", "[cli]") {
  const std::vector<LogPoint> points =
      PointsOfLine(R"({"step": 1, "<b> x\n": 1, ")" + std::string(100, 'z') + R"(": 2})");
  REQUIRE(points.size() == 2);
  CHECK(points[0].name == "_b__x_");
  CHECK(points[1].name == std::string(64, 'z'));
}

TEST_CASE("Metrics log: complete lines are read once, a shorter file from its beginning", "[cli]") {
  const LogFile log;
  LogTail tail(log.path);
  CHECK(tail.Read(10)->empty());
  log.Write("one\ntwo\nthr");
  CHECK(*tail.Read(10) == std::vector<std::string>{"one", "two"});
  CHECK(tail.Read(10)->empty());
  log.Write("ee\nfour\n");
  CHECK(*tail.Read(1) == std::vector<std::string>{"three"});
  CHECK(*tail.Read(1) == std::vector<std::string>{"four"});
  log.Write("new\n", std::ios::trunc);
  CHECK(*tail.Read(10) == std::vector<std::string>{"new"});
  CHECK(MetricsFileOf(log.path.parent_path()) == log.path);
  CHECK(MetricsFileOf(log.path) == log.path);
}

TEST_CASE("Metrics log: what the server has is not sent again, but for the newest", "[cli]") {
  PointFilter filter(Json::parse(R"({"series": [{"name": "a", "last_step": 5}]})"));
  const auto names = [&](const std::vector<LogPoint>& points) {
    std::string text;
    for (const LogPoint& point : filter.Keep(points)) {
      text += point.name + std::to_string(point.step) + " ";
    }
    return text;
  };
  CHECK(names({{"a", 1, 4}, {"a", 1, 5}, {"a", 1, 6}, {"a", 1, 3}, {"b", 1, 0}}) == "a5 a6 b0 ");
  filter.Took({{"a", 1, 6}});
  CHECK(names({{"a", 1, 5}, {"a", 1, 6}}) == "a6 ");
  filter.LeaveOut("a");
  CHECK(names({{"a", 1, 7}, {"b", 1, 1}}) == "b1 ");
  CHECK(BodyOf({{"a", 0.5, 7}}) ==
        Json::parse(R"({"points": [{"name": "a", "value": 0.5, "step": 7}]})"));
}

TEST_CASE("Metrics log: a refusal names its point", "[cli]") {
  CHECK(RefusedIndex(R"(answered 400: {"field": "points[12].name"})") == 12);
  CHECK(RefusedIndex("answered 400: {}") == -1);
  CHECK(RefusedIndex("points[x]") == -1);
}

}  // namespace
}  // namespace lathe::cli
