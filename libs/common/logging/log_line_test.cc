#include "libs/common/logging/log_line.h"

#include <catch2/catch.hpp>

#include "absl/strings/string_view.h"
#include "libs/common/json/json.h"
#include "libs/common/logging/logging.h"

namespace lathe {
namespace {

LogEvent Event() { return {absl::FromUnixMillis(1'250), "info", "engine", "worker attached"}; }

TEST_CASE("A JSON line holds the event and its typed fields in order", "[logging]") {
  const std::string group = "default";
  const std::string line = FormatJsonLine(
      Event(), {{"group", group}, {"epoch", 3}, {"ratio", 0.5}, {"ready", true}, {"size", 7ul}});
  CHECK(
      line ==
      R"({"ts":"1970-01-01T00:00:01.250000Z","level":"info","service":"engine",)"
      R"("msg":"worker attached","group":"default","epoch":3,"ratio":0.5,"ready":true,"size":7})");
}

TEST_CASE("A JSON line stays one valid line whatever the values hold", "[logging]") {
  const std::string line = FormatJsonLine(Event(), {{"error", "a \"b\"\nc\xff"}});
  CHECK(line.find('\n') == std::string::npos);
  CHECK(*JsonString(*ParseJson(line, "line"), "error") == "a \"b\"\nc\xef\xbf\xbd");
}

TEST_CASE("A text line quotes only values that need it", "[logging]") {
  const std::string line = FormatTextLine(Event(), {{"group", "default"},
                                                    {"error", "no room"},
                                                    {"name", absl::string_view("x")},
                                                    {"empty", ""},
                                                    {"epoch", -1}});
  CHECK(line.find("info  worker attached group=default error=\"no room\" name=x empty=\"\" "
                  "epoch=-1") != std::string::npos);
}

TEST_CASE("A percent sign or brace in a message is no format", "[logging]") {
  InitLogging("test", "debug");
  LogDebug("100 % of {} done", {{"progress", "{0} %s"}});
}

}  // namespace
}  // namespace lathe
