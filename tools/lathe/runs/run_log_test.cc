#include "tools/lathe/runs/run_log.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace lathe::cli {
namespace {

using Catch::Contains;

std::string Second(int second) { return absl::StrFormat("2027-01-15T08:00:%02dZ", second); }

Json Request(int seq_id, const std::string& operation, const std::string& outcome,
             double seconds = 0.5) {
  return {
      {"request_id", absl::StrFormat("r%d", seq_id)},
      {"operation", operation},
      {"seq_id", seq_id},
      {"tokens", 16},
      {"outcome", outcome},
      {"group", "default"},
      {"accepted_at", Second(seq_id)},
      {"seconds", seconds},
      {"stages",
       {{{"name", "accept"}, {"seconds", 0.0001}}, {{"name", "queued"}, {"seconds", seconds}}}}};
}

// `requests` in the order of acceptance; the API answers the newest first.
Json Answer(std::vector<Json> requests, const Json& complete_since = nullptr) {
  return {{"requests", std::vector<Json>(requests.rbegin(), requests.rend())},
          {"complete_since", complete_since}};
}

std::vector<std::string> Types(const std::vector<LogEntry>& entries) {
  std::vector<std::string> types;
  for (const LogEntry& entry : entries) types.push_back(entry.json["type"]);
  return types;
}

TEST_CASE("A request is a line with outcome, stages and tokens", "[logs]") {
  RunLog log(/*has_unfinished=*/true);
  const std::vector<LogEntry> entries =
      log.AddRequests(Answer({Request(1, "forward_backward", "user_error")}));
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].text ==
        "2027-01-15 08:00:01.000Z  forward_backward seq 1: user_error in 0.500 s (queued 0.500), "
        "16 tokens, group default");
}

TEST_CASE("A request that ran twice says why", "[logs]") {
  RunLog log(/*has_unfinished=*/true);
  Json request = Request(1, "forward", "ok");
  request["num_dispatches"] = 2;
  CHECK_THAT(log.AddRequests(Answer({request}))[0].text, Contains("2 times"));
}

TEST_CASE("Requests come in the order of acceptance, each once", "[logs]") {
  RunLog log(/*has_unfinished=*/true);
  const Json first = Request(1, "forward_backward", "ok"), second = Request(2, "optim_step", "ok");
  const std::vector<LogEntry> entries = log.AddRequests(Answer({first, second}));
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].json["seq_id"] == 1);
  CHECK(log.AddRequests(Answer({first, second})).empty());
  CHECK(log.AddRequests(Answer({second, Request(3, "forward", "ok")})).size() == 1);
}

TEST_CASE("A follower hears of a request when it ends, and once before if it waits long",
          "[logs]") {
  RunLog log(/*has_unfinished=*/false);
  CHECK(log.AddRequests(Answer({Request(1, "forward", "unfinished", 3)})).empty());
  const auto long_wait = log.AddRequests(Answer({Request(1, "forward", "unfinished", 11)}));
  REQUIRE(Types(long_wait) == std::vector<std::string>{"waiting"});
  CHECK_THAT(long_wait[0].text, Contains("not finished after 11.0 s, queued for 11.0 s"));
  CHECK(log.AddRequests(Answer({Request(1, "forward", "unfinished", 12)})).empty());
  const auto end = log.AddRequests(Answer({Request(1, "forward", "ok", 13)}));
  CHECK(Types(end) == std::vector<std::string>{"request"});
}

TEST_CASE("A short answer is whole if it reaches back to what has ended", "[logs]") {
  RunLog log(/*has_unfinished=*/false);
  CHECK_FALSE(log.IsWhole(Answer({Request(2, "forward", "ok")}), 1));
  CHECK(log.IsWhole(Answer({Request(2, "forward", "ok")}), 2));
  log.AddRequests(Answer({Request(1, "forward", "ok"), Request(2, "forward", "unfinished"),
                          Request(3, "forward", "ok")}));
  CHECK(log.IsWhole(Answer({Request(1, "forward", "ok"), Request(2, "forward", "ok")}), 2));
  // The end of the second would be missed.
  CHECK_FALSE(log.IsWhole(Answer({Request(3, "forward", "ok")}), 1));
  log.AddRequests(Answer(
      {Request(1, "forward", "ok"), Request(2, "forward", "ok"), Request(3, "forward", "ok")}));
  CHECK(log.IsWhole(Answer({Request(2, "forward", "ok"), Request(4, "forward", "ok")}), 2));
}

TEST_CASE("What has left a short answer is not said again", "[logs]") {
  RunLog log(/*has_unfinished=*/false);
  const Json first = Request(1, "forward", "ok"), second = Request(2, "forward", "ok");
  CHECK(log.AddRequests(Answer({first, second})).size() == 2);
  CHECK(log.AddRequests(Answer({second})).empty());
  CHECK(log.AddRequests(Answer({first, second})).empty());
}

TEST_CASE("A gap is said once, and only if requests may be missing in it", "[logs]") {
  RunLog log(/*has_unfinished=*/false);
  log.AddRequests(Answer({Request(1, "forward", "ok"), Request(5, "forward", "ok")}));
  // The answer is full: its oldest requests left it, but they have been seen.
  CHECK(log.AddRequests(Answer({Request(5, "forward", "ok")}, Second(4))).empty());
  // An engine started at second 9.
  CHECK(Types(log.AddRequests(Answer({}, Second(9)))) == std::vector<std::string>{"missing"});
  CHECK(log.AddRequests(Answer({}, Second(9))).empty());
}

TEST_CASE("Checkpoints are asked for when a save has ended", "[logs]") {
  RunLog log(/*has_unfinished=*/false);
  const Json nothing = Answer({});
  CHECK(log.MayHaveSaved(nothing));
  const Json old_one = {{"tinker_path", "tinker://r/weights/a"}, {"time", Second(2)}};
  const Json new_one = {{"tinker_path", "tinker://r/weights/b"}, {"time", Second(4)}};
  CHECK(log.AddCheckpoints({{"checkpoints", {old_one}}}).size() == 1);
  CHECK_FALSE(log.MayHaveSaved(nothing));
  CHECK_FALSE(log.MayHaveSaved(Answer({Request(3, "save_weights", "unfinished")})));
  CHECK(log.MayHaveSaved(Answer({Request(3, "save_weights", "ok")})));
  const auto entries = log.AddCheckpoints({{"checkpoints", {new_one, old_one}}});
  REQUIRE(entries.size() == 1);
  CHECK_THAT(entries[0].text, Contains("tinker://r/weights/b"));
}

TEST_CASE("The newest entries are kept, in the order of time", "[logs]") {
  std::vector<LogEntry> entries;
  for (const int second : {3, 1, 2}) {
    entries.push_back({.time = absl::FromUnixSeconds(second), .text = std::to_string(second)});
  }
  const std::vector<LogEntry> newest = NewestEntries(entries, 2);
  REQUIRE(newest.size() == 2);
  CHECK(newest[0].text == "2");
  CHECK(newest[1].text == "3");
}

TEST_CASE("Text of others in the log is plain text", "[logs]") {
  RunLog log(/*has_unfinished=*/true);
  Json request = Request(1, "forward\x1b[31m", "ok");
  request["group"] = "a\nb";
  const std::string text = log.AddRequests(Answer({request}))[0].text;
  CHECK(text.find_first_of("\x1b\n") == std::string::npos);
}

}  // namespace
}  // namespace lathe::cli
