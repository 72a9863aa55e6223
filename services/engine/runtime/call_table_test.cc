#include "services/engine/runtime/call_table.h"

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

TEST_CASE("CallTable: a call that waited too long fails, once, and the others wait on",
          "[runtime]") {
  CallTable calls;
  const CallTable::Time now = std::chrono::steady_clock::now();
  std::string ended;
  const auto end_as = [&ended](char name) {
    return [&ended, name](const Answer& answer) {
      ended += name;
      ended += answer.error ? '!' : '.';
    };
  };
  const CallId late = calls.Add(end_as('a'), now);
  const CallId early = calls.Add(end_as('b'), now + std::chrono::seconds(5));
  const CallId patient = calls.Add(end_as('c'));
  const ErrorInfo error{.status = absl::StatusCode::kUnavailable};
  calls.FailExpired(now, error);
  CHECK(ended.empty());
  calls.FailExpired(now + std::chrono::seconds(1), error);
  CHECK(ended == "a!");
  Answer answer;
  answer.call = late;
  calls.Finish(answer);
  answer.call = early;
  calls.Finish(answer);
  CHECK(ended == "a!b.");
  calls.FailExpired(now + std::chrono::hours(1000), error);
  CHECK(ended == "a!b.");
  answer.call = patient;
  calls.Finish(answer);
  CHECK(ended == "a!b.c.");
}

TEST_CASE("CallTable: a call that cannot be repeated says that its outcome is unknown",
          "[runtime]") {
  const bool may_repeat = GENERATE(true, false);
  const bool stops = GENERATE(true, false);
  CallTable calls;
  const CallTable::Time now = std::chrono::steady_clock::now();
  ErrorInfo told;
  calls.Add([&told](const Answer& answer) { told = *answer.error; }, now, may_repeat);
  const ErrorInfo error{
      .status = absl::StatusCode::kUnavailable, .code = "x", .field = "", .message = "why"};
  if (stops) {
    calls.FailAll(error);
  } else {
    calls.FailExpired(now + std::chrono::seconds(1), error);
  }
  CHECK(told.status ==
        (may_repeat ? absl::StatusCode::kUnavailable : absl::StatusCode::kDeadlineExceeded));
  CHECK(told.code == (may_repeat ? "x" : "outcome_unknown"));
  const bool invites = told.message.find("may be sent again") != std::string::npos;
  const bool warns = told.message.find("may have been accepted") != std::string::npos;
  CHECK(invites == may_repeat);
  CHECK(warns == !may_repeat);
}

}  // namespace
}  // namespace lathe::engine
