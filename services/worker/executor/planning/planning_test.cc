#include <catch2/catch.hpp>

#include <string>
#include <variant>
#include <vector>

#include "services/worker/executor/planning/model_lanes.h"
#include "services/worker/executor/planning/time_share.h"

namespace lathe::worker {
namespace {

TrainRequest Train(const std::string& model_id, int64_t seq_id) {
  TrainRequest request;
  request.request_id = model_id + std::to_string(seq_id);
  request.model_id = model_id;
  request.seq_id = seq_id;
  return request;
}

OptimStep Step(const std::string& model_id, int64_t seq_id) {
  OptimStep step;
  step.model_id = model_id;
  step.seq_id = seq_id;
  return step;
}

std::vector<std::string> Ids(const std::vector<TrainRequest>& requests) {
  std::vector<std::string> ids;
  for (const TrainRequest& request : requests) ids.push_back(request.request_id);
  return ids;
}

bool AnyMayRun(const ModelLanes::Barrier&) { return true; }

TEST_CASE("train requests before a barrier are taken together, those behind it wait",
          "[executor]") {
  ModelLanes lanes;
  lanes.Push(Train("a", 1));
  lanes.Push(Train("a", 2));
  lanes.Push(Step("a", 3));
  lanes.Push(Train("a", 4));
  CHECK(Ids(lanes.TakeTrains()) == std::vector<std::string>{"a1", "a2"});
  CHECK_FALSE(lanes.TakeBarrier(AnyMayRun).has_value());
  CHECK(lanes.TakeTrains().empty());
  lanes.EndTrain("a");
  CHECK_FALSE(lanes.TakeBarrier(AnyMayRun).has_value());
  lanes.EndTrain("a");
  const auto barrier = lanes.TakeBarrier(AnyMayRun);
  REQUIRE(barrier.has_value());
  CHECK(std::get<OptimStep>(*barrier).seq_id == 3);
  CHECK(Ids(lanes.TakeTrains()) == std::vector<std::string>{"a4"});
}

TEST_CASE("a barrier that may not run yet holds back its own model only", "[executor]") {
  ModelLanes lanes;
  lanes.Push(Step("a", 1));
  lanes.Push(Step("a", 2));
  lanes.Push(Step("b", 1));
  const auto not_a = [](const ModelLanes::Barrier& barrier) { return ModelIdOf(barrier) != "a"; };
  const auto first = lanes.TakeBarrier(not_a);
  REQUIRE(first.has_value());
  CHECK(ModelIdOf(*first) == "b");
  CHECK_FALSE(lanes.TakeBarrier(not_a).has_value());
  for (const int64_t seq_id : {1, 2}) {
    const auto barrier = lanes.TakeBarrier(AnyMayRun);
    REQUIRE(barrier.has_value());
    CHECK(std::get<OptimStep>(*barrier).seq_id == seq_id);
  }
}

TEST_CASE("a snapshot does not wait behind a save without room, a step does", "[executor]") {
  ModelLanes lanes;
  lanes.Push(ModelLanes::Barrier(SaveCheckpoint{.request_id = "save", .model_id = "a"}));
  lanes.Push(ModelLanes::Barrier(Snapshot{.snapshot_id = "s", .model_id = "a"}));
  lanes.Push(Step("a", 1));
  lanes.Push(ModelLanes::Barrier(Snapshot{.snapshot_id = "t", .model_id = "a"}));
  const auto no_save = [](const ModelLanes::Barrier& barrier) {
    return !std::holds_alternative<SaveCheckpoint>(barrier);
  };
  const auto snapshot = lanes.TakeBarrier(no_save);
  REQUIRE(snapshot.has_value());
  CHECK(std::get<Snapshot>(*snapshot).snapshot_id == "s");
  CHECK_FALSE(lanes.TakeBarrier(no_save).has_value());
  CHECK(std::holds_alternative<SaveCheckpoint>(*lanes.TakeBarrier(AnyMayRun)));
  CHECK(std::holds_alternative<OptimStep>(*lanes.TakeBarrier(no_save)));
  CHECK(std::get<Snapshot>(*lanes.TakeBarrier(no_save)).snapshot_id == "t");
}

TEST_CASE("models do not wait for each other", "[executor]") {
  ModelLanes lanes;
  lanes.Push(Train("a", 1));
  lanes.Push(Step("a", 2));
  lanes.Push(Step("b", 1));
  CHECK(Ids(lanes.TakeTrains()) == std::vector<std::string>{"a1"});
  const auto barrier = lanes.TakeBarrier(AnyMayRun);
  REQUIRE(barrier.has_value());
  CHECK(ModelIdOf(*barrier) == "b");
  CHECK_FALSE(lanes.TakeBarrier(AnyMayRun).has_value());
}

TEST_CASE("barriers of one model keep their order", "[executor]") {
  ModelLanes lanes;
  lanes.Push(Step("a", 1));
  lanes.Push(ModelLanes::Barrier(SaveCheckpoint{.request_id = "save", .model_id = "a"}));
  CHECK(std::holds_alternative<OptimStep>(*lanes.TakeBarrier(AnyMayRun)));
  CHECK(std::holds_alternative<SaveCheckpoint>(*lanes.TakeBarrier(AnyMayRun)));
  CHECK_FALSE(lanes.TakeBarrier(AnyMayRun).has_value());
}

TEST_CASE("a use without competition gets the whole device", "[executor]") {
  TimeShare share(0.5);
  CHECK(share.Pick(false, false) == DeviceUse::kNothing);
  CHECK(share.Pick(true, false) == DeviceUse::kTraining);
  CHECK(share.Pick(false, true) == DeviceUse::kSampling);
}

TEST_CASE("device time is divided by the configured share", "[executor]") {
  const double sampling_share = GENERATE(0.25, 0.5, 0.8);
  TimeShare share(sampling_share);
  absl::Duration training, sampling;
  for (int unit = 0; unit < 1000; ++unit) {
    const DeviceUse use = share.Pick(true, true);
    // A training unit is much longer than a decode pass.
    const absl::Duration spent =
        use == DeviceUse::kTraining ? absl::Milliseconds(40) : absl::Milliseconds(3);
    (use == DeviceUse::kTraining ? training : sampling) += spent;
    share.Charge(use, spent);
  }
  const double measured = absl::FDivDuration(sampling, training + sampling);
  CHECK(measured == Approx(sampling_share).margin(0.02));
}

TEST_CASE("time that one used alone is not owed back", "[executor]") {
  TimeShare share(0.5);
  for (int unit = 0; unit < 100; ++unit) {
    share.Charge(share.Pick(true, false), absl::Seconds(1));
  }
  int sampling_units = 0;
  for (int unit = 0; unit < 10; ++unit) {
    const DeviceUse use = share.Pick(true, true);
    if (use == DeviceUse::kSampling) ++sampling_units;
    share.Charge(use, absl::Seconds(1));
  }
  CHECK(sampling_units == 5);
}

}  // namespace
}  // namespace lathe::worker
