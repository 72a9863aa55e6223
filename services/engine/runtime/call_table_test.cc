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

}  // namespace
}  // namespace lathe::engine
