#include "tools/lathe/top/top_frame.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

void AddRun(v1::GetStatusResponse& status, const std::string& id, const std::string& tenant,
            int64_t waiting, int64_t seq) {
  v1::ModelStatus& run = *status.add_models();
  run.set_model_id(id);
  run.set_tenant(tenant);
  run.set_state("ready");
  run.set_pending_requests(waiting);
  run.set_applied_seq(seq);
}

v1::GetStatusResponse Service() {
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.set_term(3);
  status.set_pending_requests(7);
  v1::GroupStatus& group = *status.add_groups();
  group.set_group("default");
  group.set_state("ready");
  group.set_base_model("tiny");
  v1::RankStatus& rank = *group.add_ranks();
  rank.set_device("cpu");
  rank.set_pid(42);
  rank.mutable_memory()->set_used_bytes(int64_t{1} << 30);
  rank.mutable_memory()->set_limit_bytes(int64_t{4} << 30);
  AddRun(status, "b:train:0", "ann", 2, 9);
  AddRun(status, "a:train:0", "bob", 5, 4);
  AddRun(status, "c:train:0", "ann", 0, 12);
  return status;
}

TopState StateOf(const v1::GetStatusResponse& status) {
  TopState state;
  state.Add(status, kStart, kStart);
  return state;
}

std::vector<std::string> FrameText(const TopState& state, const TopView& view) {
  std::vector<std::string> texts;
  for (const ScreenLine& line : TopFrame(state, view)) texts.push_back(line.text);
  return texts;
}

// Returns the index of the first line that begins with `text`, blanks apart; the number of lines if
// there is none.
std::size_t LineOf(const std::vector<std::string>& lines, const std::string& text) {
  const auto found = std::find_if(lines.begin(), lines.end(), [&text](const std::string& line) {
    return absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), text);
  });
  return static_cast<std::size_t>(found - lines.begin());
}

TEST_CASE("A frame shows groups, ranks, tenants and runs", "[top]") {
  const std::vector<std::string> lines = FrameText(StateOf(Service()), {});
  CHECK(lines[0] == "lathe top  08:00:00Z  engine 0.1.0, term 3  7 requests wait or run");
  CHECK(lines[1] == "GROUP    STATE  BASE MODEL");
  CHECK(lines[2] == "default  ready  tiny");
  CHECK(lines[4] == "default/0  [###-------]  1.00 of 4.00 GiB  cpu      42");
  CHECK(LineOf(lines, "5     1  bob") < LineOf(lines, "2     2  ann"));
}

TEST_CASE("Runs are sorted by what waits, by seq or by name", "[top]") {
  const auto [order, first, last] = GENERATE(
      table<TopOrder, std::string, std::string>({{TopOrder::kWaiting, "a:train:0", "c:train:0"},
                                                 {TopOrder::kSeq, "c:train:0", "a:train:0"},
                                                 {TopOrder::kName, "a:train:0", "c:train:0"}}));
  const std::vector<std::string> lines = FrameText(StateOf(Service()), {.order = order});
  CHECK(LineOf(lines, first) < LineOf(lines, "b:train:0"));
  CHECK(LineOf(lines, "b:train:0") < LineOf(lines, last));
  CHECK(LineOf(lines, last) < lines.size());
}

TEST_CASE("A filter hides what does not have it", "[top]") {
  const std::vector<std::string> lines = FrameText(StateOf(Service()), {.filter = "BOB"});
  CHECK(LineOf(lines, "a:train:0") < lines.size());
  CHECK(LineOf(lines, "b:train:0") == lines.size());
  CHECK(LineOf(lines, "default") == lines.size());
}

TEST_CASE("No frame is larger than its terminal", "[top]") {
  v1::GetStatusResponse status = Service();
  for (int index = 0; index < 500; ++index) {
    AddRun(status, absl::StrCat("模型-", index), absl::StrCat("tenant-", index), index, index);
  }
  TopState state = StateOf(status);
  state.AddFailure(absl::UnavailableError("a long reason of many words, and more"), kStart);
  const auto [rows, columns] =
      GENERATE(table<int, int>({{24, 80}, {12, 40}, {5, 20}, {2, 3}, {1, 1}, {200, 300}}));
  const bool is_help = GENERATE(false, true);
  const TopView view = {.size = {rows, columns}, .is_help = is_help, .has_keys = true};
  const std::vector<std::string> lines = FrameText(state, view);
  CHECK(lines.size() <= static_cast<std::size_t>(rows));
  for (const std::string& line : lines) CHECK(TextWidth(line) <= columns);
}

TEST_CASE("A small frame says how many rows it leaves out", "[top]") {
  v1::GetStatusResponse status = Service();
  for (int index = 0; index < 500; ++index) AddRun(status, absl::StrCat(index), "ann", 0, 0);
  const std::vector<std::string> lines =
      FrameText(StateOf(status), {.size = {12, 40}, .has_keys = true});
  REQUIRE(lines.size() == 12);
  const std::size_t runs = LineOf(lines, "RUN ");
  CHECK(LineOf(lines, "GROUP") < lines.size());
  REQUIRE(runs < lines.size());
  const std::string more = *std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return absl::EndsWith(line, " more");
  });
  const std::size_t num_shown = LineOf(lines, absl::StrCat(more).substr(2)) - runs - 1;
  CHECK(more == absl::StrCat("  ", 503 - num_shown, " more"));
}

TEST_CASE("An outage is the first thing that a frame says", "[top]") {
  TopState state = StateOf(Service());
  state.AddFailure(absl::UnavailableError("away"), kStart + absl::Seconds(5));
  const std::vector<std::string> lines = FrameText(state, {.size = {12, 40}, .has_keys = true});
  CHECK(absl::StartsWith(lines[0], "lathe top  no answer since 08:00:05Z"));
}

TEST_CASE("Names of others are plain text in a frame", "[top]") {
  v1::GetStatusResponse status = Service();
  AddRun(status, "\x1b]0;owned\x07", "a\nb\xe2\x80\xae", 9, 9);
  TopState state = StateOf(status);
  status.mutable_models()->RemoveLast();
  state.Add(status, kStart, kStart);
  const std::string filter = GENERATE(as<std::string>{}, "", "\x1b[2J");
  for (const std::string& line : FrameText(
           state, {.size = {24, 80}, .filter = filter, .is_typing = true, .has_keys = true})) {
    CHECK(line.find_first_of("\x1b\x07\n") == std::string::npos);
    CHECK_FALSE(absl::StrContains(line, "\xe2\x80\xae"));
  }
}

TEST_CASE("An empty service has a frame", "[top]") {
  const std::vector<std::string> lines = FrameText(StateOf({}), {});
  CHECK(lines[1] == "GROUP");
  CHECK(lines[2] == "none");
}

}  // namespace
}  // namespace lathe::cli
