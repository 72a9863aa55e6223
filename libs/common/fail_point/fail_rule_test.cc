#include "libs/common/fail_point/fail_rule.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "libs/common/fail_point/fail_point_list.h"

namespace lathe {
namespace {

using Catch::Matchers::Contains;

FailRule Parsed(const std::string& text) {
  const auto rules = ParseFailRules(text);
  INFO(rules.status().message());
  REQUIRE(rules.ok());
  REQUIRE(rules->size() == 1);
  return rules->front();
}

TEST_CASE("FailRule: an action stands for every pass of every process", "[fail_point]") {
  const FailRule rule = Parsed("engine.commit.before=kill");
  CHECK(FailPointList()[rule.point].name == "engine.commit.before");
  CHECK(rule.action == FailRule::Action::kKill);
  CHECK(rule.first == 1);
  CHECK(rule.last == INT64_MAX);
  CHECK(rule.probability == 1);
  CHECK(rule.pid == 0);
}

TEST_CASE("FailRule: passes, probability and process narrow it down", "[fail_point]") {
  CHECK(Parsed("worker.train.begin=segv?13@2").value == 13);
  CHECK(Parsed("worker.train.begin=segv?13@2").first == 2);
  const FailRule one = Parsed("engine.tick=sleep:250@3");
  CHECK(one.sleep == std::chrono::milliseconds(250));
  CHECK(one.first == 3);
  CHECK(one.last == 3);
  const FailRule all = Parsed("engine.tick=stop@2+%0.25#77");
  CHECK(all.first == 2);
  CHECK(all.last == INT64_MAX);
  CHECK(all.probability == 0.25);
  CHECK(all.pid == 77);
}

TEST_CASE("FailRule: an error has a number, EIO by itself", "[fail_point]") {
  CHECK(Parsed("worker.save.fsync=error").error_number == EIO);
  CHECK(Parsed("worker.save.fsync=error:28").error_number == 28);
}

TEST_CASE("FailRule: commas and white space separate rules", "[fail_point]") {
  const auto rules = ParseFailRules("\nengine.tick=abort, engine.accept=segv\n");
  REQUIRE(rules.ok());
  CHECK(rules->size() == 2);
  CHECK(ParseFailRules("")->empty());
}

TEST_CASE("FailRule: an error quotes the wrong part", "[fail_point]") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"engine.tick", "expected NAME=ACTION"},
      {"engine.nothing=kill", "no such fail point"},
      {"engine.tick=die", "expected kill, stop"},
      {"engine.tick=skip", "this fail point cannot skip anything"},
      {"engine.tick=sleep:x", "expected kill, stop"},
      {"engine.tick=error", "this fail point cannot return an error"},
      {"worker.save.fsync=error:0", "expected kill, stop"},
      {"engine.tick=kill@0", "N at least 1"},
      {"engine.tick=kill%2", "probability in (0, 1]"},
      {"engine.tick=kill#x", "expected a process id"},
  }));
  const auto rules = ParseFailRules(text);
  REQUIRE(rules.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(rules.status().message()), Contains("'" + text + "': ") && Contains(why));
}

}  // namespace
}  // namespace lathe
