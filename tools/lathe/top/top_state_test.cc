#include "tools/lathe/top/top_state.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace lathe::cli {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1'800'000'000);

v1::GetStatusResponse StatusWith(const std::string& state, int64_t pid, int64_t tokens) {
  v1::GetStatusResponse status;
  status.set_term(3);
  v1::GroupStatus& group = *status.add_groups();
  group.set_group("default");
  group.set_state(state);
  if (pid > 0) group.add_ranks()->set_pid(pid);
  if (state == "ready") group.mutable_counters()->set_generated_tokens(tokens);
  return status;
}

std::vector<std::string> Texts(const TopState& state) {
  std::vector<std::string> texts;
  for (const TopEvent& event : state.events()) texts.push_back(event.text);
  return texts;
}

TEST_CASE("The first status is no event", "[top]") {
  TopState state;
  state.Add(StatusWith("ready", 7, 0), kBegin, kBegin);
  CHECK(state.events().empty());
  CHECK_FALSE(state.RateOf("default").has_value());
}

TEST_CASE("Speed is what the counters grew by, and nothing after a new worker", "[top]") {
  TopState state;
  state.Add(StatusWith("ready", 7, 100), kBegin, kBegin);
  state.Add(StatusWith("ready", 7, 150), kBegin, kBegin + absl::Seconds(2));
  CHECK(state.RateOf("default")->generated_tokens == 25);
  state.Add(StatusWith("ready", 8, 10), kBegin, kBegin + absl::Seconds(4));
  CHECK_FALSE(state.RateOf("default").has_value());
}

TEST_CASE("Groups and ranks that change are events", "[top]") {
  TopState state;
  state.Add(StatusWith("ready", 7, 0), kBegin, kBegin);
  state.Add(StatusWith("lost", 0, 0), kBegin, kBegin + absl::Seconds(1));
  state.Add(StatusWith("ready", 9, 0), kBegin, kBegin + absl::Seconds(2));
  CHECK(Texts(state) == std::vector<std::string>{"group default: ready -> lost",
                                                 "group default: rank 0 gone, pid 7",
                                                 "group default: lost -> ready",
                                                 "group default: rank 0 attached, pid 9"});
}

TEST_CASE("Runs that come, change and end are events", "[top]") {
  TopState state;
  v1::GetStatusResponse status;
  state.Add(status, kBegin, kBegin);
  v1::ModelStatus& run = *status.add_models();
  run.set_model_id("s:train:0");
  run.set_tenant("ann");
  run.set_state("creating");
  state.Add(status, kBegin, kBegin);
  run.set_state("ready");
  state.Add(status, kBegin, kBegin);
  run.set_group("default");
  state.Add(status, kBegin, kBegin);
  status.clear_models();
  state.Add(status, kBegin, kBegin);
  CHECK(Texts(state) ==
        std::vector<std::string>{"run s:train:0: new, of ann", "run s:train:0: creating -> ready",
                                 "run s:train:0: group none -> default", "run s:train:0: ended"});
}

TEST_CASE("Thousands of changes are some lines, and events are bounded", "[top]") {
  TopState state;
  state.Add({}, kBegin, kBegin);
  v1::GetStatusResponse status;
  for (int index = 0; index < 5000; ++index)
    status.add_models()->set_model_id(std::to_string(index));
  state.Add(status, kBegin, kBegin);
  CHECK(state.events().size() == 11);
  CHECK(state.events().back().text == "4990 more runs have changed");
  for (int turn = 0; turn < 100; ++turn) {
    state.AddFailure(absl::UnavailableError("away"), kBegin);
    state.Add(status, kBegin, kBegin);
  }
  CHECK(state.events().size() == 100);
}

TEST_CASE("An outage has one time, and what was known stays", "[top]") {
  TopState state;
  state.Add(StatusWith("ready", 7, 0), kBegin, kBegin);
  state.AddFailure(absl::UnavailableError("away"), kBegin + absl::Seconds(1));
  state.AddFailure(absl::UnavailableError("away"), kBegin + absl::Seconds(2));
  CHECK(state.away_since() == kBegin + absl::Seconds(1));
  CHECK(state.status().groups_size() == 1);
  v1::GetStatusResponse next = StatusWith("ready", 7, 0);
  next.set_term(4);
  next.set_version("0.2.0");
  state.Add(next, kBegin, kBegin);
  CHECK_FALSE(state.away_since().has_value());
  CHECK(Texts(state) ==
        std::vector<std::string>{"no answer: away", "the server answers again",
                                 "another engine leads: term 3 -> 4, version 0.2.0"});
}

}  // namespace
}  // namespace lathe::cli
