#include "tools/lathe/runs/run_list.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace lathe::cli {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string ApiTime(absl::Duration ago) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", kNow - ago, absl::UTCTimeZone());
}

ListedRun SomeRun(const std::string& name) {
  return {.run = {{"training_run_id", "0123:train:0"},
                  {"base_model", "Qwen/Qwen3-0.6B"},
                  {"corrupted", false},
                  {"last_request_time", ApiTime(absl::Seconds(30))}},
          .session = {{"session_id", "0123"},
                      {"display_name", name},
                      {"project_id", "math"},
                      {"created_at", ApiTime(absl::Hours(1))},
                      {"status", {{"type", "active"}}}},
          .last_step = 12};
}

TEST_CASE("A run is what its session says, unless its state was lost", "[runs]") {
  ListedRun run = SomeRun("first");
  const auto [status, state] = GENERATE(table<std::string, std::string>({
      {R"({"type": "active"})", "active"},
      {R"({"type": "client_finished", "reason": {"type": "success"}})", "finished"},
      {R"({"type": "client_finished", "reason": {"type": "errored"}})", "failed"},
      {R"({"type": "client_finished", "reason": {"type": "interrupted"}})", "interrupted"},
      {"null", "ended"},
  }));
  run.session["status"] = *ParseJson(status, "status");
  CHECK(run.state() == state);
  run.run["corrupted"] = true;
  CHECK(run.state() == "broken");
}

TEST_CASE("A run whose session was not found has no name", "[runs]") {
  ListedRun run = SomeRun("first");
  run.session = nullptr;
  CHECK(run.state() == "unknown");
  CHECK(run.name().empty());
}

TEST_CASE("A filter needs all its words, in any case", "[runs]") {
  const ListedRun run = SomeRun("Sweep lr 1e-4");
  CHECK(IsChosen(run, "", ""));
  CHECK(IsChosen(run, "sweep QWEN", ""));
  CHECK(IsChosen(run, "math 0123:train", "active"));
  CHECK_FALSE(IsChosen(run, "sweep other", ""));
  CHECK_FALSE(IsChosen(run, "", "failed"));
}

TEST_CASE("The last step is the newest that succeeded", "[runs]") {
  const Json requests = {{"requests",
                          {{{"operation", "optim_step"}, {"outcome", "unfinished"}, {"seq_id", 6}},
                           {{"operation", "forward_backward"}, {"outcome", "ok"}, {"seq_id", 5}},
                           {{"operation", "optim_step"}, {"outcome", "ok"}, {"seq_id", 4}},
                           {{"operation", "optim_step"}, {"outcome", "ok"}, {"seq_id", 2}}}}};
  CHECK(LastStep(requests) == 4);
  CHECK_FALSE(LastStep({{"requests", Json::array()}}).has_value());
  CHECK_FALSE(LastStep("nonsense").has_value());
}

TEST_CASE("Ages are short", "[runs]") {
  const auto [ago, text] = GENERATE(table<absl::Duration, std::string>({
      {-absl::Hours(1), "now"},
      {absl::Seconds(4), "now"},
      {absl::Seconds(119), "119 s ago"},
      {absl::Minutes(3), "3 min ago"},
      {absl::Hours(47), "47 h ago"},
      {absl::Hours(49), "2 d ago"},
  }));
  CHECK(AgeText(kNow - ago, kNow) == text);
  CHECK(AgeText("not a time", kNow) == "-");
}

TEST_CASE("The table names a run, its state and its step, and ends with the name", "[runs]") {
  const std::vector<std::string> lines = RunTable({SomeRun("first")}, kNow, 0);
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] ==
        "0123:train:0  active  seq 12     2027-01-15 07:00Z  30 s ago    Qwen/Qwen3-0.6B  first");
}

TEST_CASE("A hostile name is one line of plain text", "[runs]") {
  const ListedRun run = SomeRun(
      "a\x1b]0;owned\x07\n\r\xe2\x80\xae"
      "evil");
  for (const std::string& line : RunTable({run}, kNow, 0)) {
    CHECK(line.find_first_of("\x1b\x07\n\r") == std::string::npos);
    CHECK_FALSE(absl::StrContains(line, "\xe2\x80\xae"));
  }
  for (const std::string& line : RunFacts(run, kNow)) {
    CHECK(line.find_first_of("\x1b\x07\n\r") == std::string::npos);
  }
  const std::string json = AsciiJsonText(run.session);
  CHECK(json.find_first_of("\x1b\x07\n\r\x7f\xe2") == std::string::npos);
}

TEST_CASE("An answer that is not as promised is shown as far as it goes", "[runs]") {
  const ListedRun run = {.run = {{"training_run_id", 7}, {"base_model", nullptr}}, .session = "x"};
  CHECK(RunTable({run}, kNow, 0).size() == 2);
  CHECK_FALSE(RunFacts(run, kNow).empty());
}

}  // namespace
}  // namespace lathe::cli
