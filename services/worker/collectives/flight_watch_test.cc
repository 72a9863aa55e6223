#include "services/worker/collectives/flight_watch.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "libs/common/time/clock.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

class FakeEvent : public DeviceEvent {
 public:
  absl::StatusOr<bool> IsPassed() const override {
    if (is_broken) return absl::UnavailableError("the device is gone");
    return is_passed.load();
  }

  std::atomic<bool> is_passed = false;
  std::atomic<bool> is_broken = false;
};

// A call on the device of a communicator.
struct FakeCall {
  FakeCall(FlightWatch& watch, FlightRecorder& recorder, const std::string& name) {
    const FlightRecorder::Id record = recorder.Queued({.axis = "tp", .name = name});
    watch.Add({.kind = CollectiveKind::kReplay,
               .name = name,
               .timeout = absl::Seconds(10),
               .record = record},
              begin, end);
  }

  const std::shared_ptr<FakeEvent> begin = std::make_shared<FakeEvent>();
  const std::shared_ptr<FakeEvent> end = std::make_shared<FakeEvent>();
};

}  // namespace

TEST_CASE("Flight watch: a deadline runs from when the device reaches the call", "[collectives]") {
  FlightRecorder recorder;
  FlightWatch watch(recorder);
  const FakeCall call(watch, recorder, "decode pass");
  const absl::Time start = SteadyNow();
  CHECK(watch.Look(start + absl::Hours(1)).ok());
  call.begin->is_passed = true;
  const absl::Time reached = start + absl::Hours(2);
  CHECK(watch.Look(reached).ok());
  CHECK(watch.Look(reached + absl::Seconds(10)).ok());
  const absl::Status late = watch.Look(reached + absl::Milliseconds(10001));
  CHECK(late == absl::DeadlineExceededError("deadline of 10s is over"));
  CHECK_THAT(recorder.Dump(), Contains("decode pass") && Contains("started"));
}

TEST_CASE("Flight watch: a call that has ended is forgotten", "[collectives]") {
  FlightRecorder recorder;
  FlightWatch watch(recorder);
  const FakeCall first(watch, recorder, "first");
  const FakeCall second(watch, recorder, "second");
  first.begin->is_passed = first.end->is_passed = true;
  const absl::Time now = SteadyNow();
  CHECK(watch.Look(now).ok());
  CHECK_THAT(recorder.Dump(), Contains("done"));
  first.end->is_passed = false;  // nobody asks it again
  CHECK(watch.Look(now + absl::Hours(1)).ok());
  second.begin->is_broken = true;
  CHECK(watch.Look(now) == absl::UnavailableError("the device is gone"));
}

TEST_CASE("Flight watch: the first error ends the watch and names the oldest call",
          "[collectives]") {
  const bool is_of_transport = GENERATE(false, true);
  FlightRecorder recorder;
  FlightWatch watch(recorder);
  std::string name = "the oldest";
  const FakeCall oldest(watch, recorder, name);
  name = "gone";  // the caller's text
  const FakeCall later(watch, recorder, "later");
  later.begin->is_broken = !is_of_transport;
  std::vector<std::pair<std::string, absl::Status>> failures;
  watch.Run(
      [&] { return is_of_transport ? absl::UnavailableError("remote error") : absl::OkStatus(); },
      [&](const CollectiveOperation& operation, const absl::Status& status) {
        failures.emplace_back(operation.name, status);
      });
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].first == "the oldest");
  CHECK(failures[0].second ==
        absl::UnavailableError(is_of_transport ? "remote error" : "the device is gone"));
}

TEST_CASE("Flight watch: a watch that is stopped reports nothing", "[collectives]") {
  FlightRecorder recorder;
  FlightWatch watch(recorder);
  bool has_failed = false;
  watch.Stop();
  watch.Run([] { return absl::OkStatus(); }, [&](const auto&, const auto&) { has_failed = true; });
  CHECK(!has_failed);
}

}  // namespace lathe::worker
