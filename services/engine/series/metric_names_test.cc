#include "services/engine/series/metric_names.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

TEST_CASE("Metric names are short and have few characters", "[series]") {
  for (const char* const name : {"a", "loss:mean", "env/all/reward/total", "A-Z_0.9"}) {
    CHECK(IsMetricName(name));
  }
  for (const char* const name : {"", "a b", "<script>", "a\n", "a\"", "a*", "\xc3\xa9", "a,b"}) {
    CHECK_FALSE(IsMetricName(name));
  }
  CHECK(IsMetricName(std::string(64, 'a')));
  CHECK_FALSE(IsMetricName(std::string(65, 'a')));
  CHECK_FALSE(IsMetricName(std::string("a\0b", 3)));
  CHECK(IsMetricPattern("reward*"));
  CHECK_FALSE(IsMetricPattern("reward?"));
}

TEST_CASE("A star stands for any characters", "[series]") {
  CHECK(MatchesPattern("*", "anything"));
  CHECK(MatchesPattern("reward*", "reward"));
  CHECK(MatchesPattern("reward*", "reward/mean"));
  CHECK(MatchesPattern("*mean", "loss:mean"));
  CHECK(MatchesPattern("a*b*c", "a-b-b-c"));
  CHECK(MatchesPattern("**", ""));
  CHECK_FALSE(MatchesPattern("reward", "reward/mean"));
  CHECK_FALSE(MatchesPattern("a*b", "a-c"));
  CHECK_FALSE(MatchesPattern("", "a"));
}

TEST_CASE("A pattern of many stars takes little time", "[series]") {
  std::string pattern;
  while (pattern.size() < 63) pattern += "a*";
  CHECK_FALSE(MatchesPattern(pattern + "b", std::string(64, 'a')));
}

TEST_CASE("Units follow from the last word", "[series]") {
  CHECK(UnitOfMetric("optim_step/queue_seconds") == "s");
  CHECK(UnitOfMetric("sample/tokens") == "tokens");
  CHECK(UnitOfMetric("loss:mean").empty());
}

}  // namespace
}  // namespace lathe::engine
