#include "services/worker/executor/lockstep/lockstep.h"

#include <catch2/catch.hpp>

#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

// Result of one rank in a test.
struct Outcome {
  std::optional<Lockstep::Round> round;
  std::string error;  // message of RanksDisagree
};

// Runs body(rank, lockstep, queue) as each rank.
template <typename Body>
std::vector<Outcome> InLockstep(int world, Body&& body) {
  return AsRanks(TestBackend::kLocal, world, [&](Collectives& collectives) -> Outcome {
    BoundedQueue<ExecutorItem> queue(16);
    Lockstep lockstep(RankGroup(collectives), queue,
                      {.idle = absl::Milliseconds(1),
                       .decode = [](const std::string& encoded) -> absl::StatusOr<Command> {
                         if (encoded == "damaged") return absl::InternalError("no command");
                         return Command(DropVersion{encoded});
                       }});
    try {
      return body(collectives.rank(), lockstep, queue);
    } catch (const RanksDisagree& error) {
      return {.round = std::nullopt, .error = std::string(error.status.message())};
    }
  });
}

SubmittedCommand Drop(const std::string& version_id, const std::string& encoded) {
  return {.command = DropVersion{version_id}, .encoded = encoded};
}

VersionJobDone Read(int64_t ticket, absl::Status status, int64_t generation = 0) {
  return {.generation = generation,
          .ticket = ticket,
          .version_id = "v",
          .result = status.ok() ? decltype(VersionJobDone::result)(SpilledWeights())
                                : decltype(VersionJobDone::result)(std::move(status))};
}

TEST_CASE("all ranks get the leader's items in the leader's order", "[lockstep]") {
  const auto outcomes = InLockstep(3, [](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    if (rank == 0) {
      queue.Push(Drop("a", "a"));
      queue.Push(ResetItem{5});
      queue.Push(Drop("b", "b"));
    }
    return {.round = lockstep.Next(
                {.preferred = rank == 0 ? DeviceUse::kTraining : DeviceUse::kSampling})};
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    CHECK(outcome.round->preferred == DeviceUse::kTraining);
    const std::vector<ExecutorItem>& items = outcome.round->items;
    REQUIRE(items.size() == 3);
    CHECK(std::get<DropVersion>(std::get<SubmittedCommand>(items[0]).command).version_id == "a");
    CHECK(std::get<ResetItem>(items[1]).generation == 5);
    CHECK(std::get<DropVersion>(std::get<SubmittedCommand>(items[2]).command).version_id == "b");
  }
}

// Accepts jobs. The tests push their results themselves.
class Waiting : public VersionJobs {
 public:
  absl::Status Enqueue(VersionJob) override {
    ++num_jobs_;
    if (num_jobs_ > max_jobs) return absl::ResourceExhaustedError("full");
    return absl::OkStatus();
  }
  int64_t max_jobs = 1000;

 private:
  int64_t num_jobs_ = 0;
};

// Runs rounds until one has items, at most 100, and returns these. Empty: no items, or a rank
// stopped.
std::vector<ExecutorItem> NextItems(Lockstep& lockstep,
                                    const Lockstep::RankState& rank_state = {}) {
  for (int i = 0; i < 100; ++i) {
    std::optional<Lockstep::Round> round = lockstep.Next(rank_state);
    if (!round.has_value()) return {};
    if (!round->items.empty()) return std::move(round->items);
  }
  return {};
}

TEST_CASE("all go on while a rank still reads a version", "[lockstep]") {
  const int slow = GENERATE(0, 1, 2);
  const auto outcomes = InLockstep(3, [&](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    Waiting jobs;
    if (!lockstep.VersionsBy(jobs).Enqueue({.ticket = 7}).ok()) return {};
    if (rank != slow) queue.Push(Read(7, absl::DataLossError("damaged on all")));
    for (int i = 0; i < 20; ++i) {
      if (rank == 0 && i == 5) queue.Push(Drop("a", "a"));
      const std::optional<Lockstep::Round> round = lockstep.Next({.is_idle = true});
      if (!round.has_value()) return {};
      for (const ExecutorItem& item : round->items) {
        if (std::holds_alternative<VersionJobDone>(item))
          return {.round = {}, .error = "too early"};
      }
    }
    if (rank == slow) queue.Push(Read(7, absl::DataLossError("damaged on all")));
    return {.round = Lockstep::Round{.items = NextItems(lockstep, {.is_idle = true})}};
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.error.empty());
    REQUIRE(outcome.round.has_value());
    REQUIRE(outcome.round->items.size() == 1);
    CHECK(std::get<VersionJobDone>(outcome.round->items[0]).ticket == 7);
  }
}

TEST_CASE("jobs that are done in another order on a rank end in one order", "[lockstep]") {
  const auto outcomes = InLockstep(2, [](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    Waiting jobs;
    if (rank == 1) jobs.max_jobs = 1;  // refuses the second job, which thus ends first
    VersionJobs& numbered = lockstep.VersionsBy(jobs);
    for (const int64_t ticket : {4, 6}) {
      if (!numbered.Enqueue({.ticket = ticket}).ok()) return {};
    }
    if (rank == 0) queue.Push(Read(4, absl::OkStatus()));
    if (rank == 0) queue.Push(Read(6, absl::OkStatus()));
    if (!lockstep.Next({}).has_value()) return {};
    if (rank == 1) queue.Push(Read(4, absl::OkStatus()));
    return {.round = Lockstep::Round{.items = NextItems(lockstep)}};
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    REQUIRE(outcome.round->items.size() == 2);
    const auto& first = std::get<VersionJobDone>(outcome.round->items[0]);
    const auto& second = std::get<VersionJobDone>(outcome.round->items[1]);
    CHECK(first.ticket == 4);
    CHECK(first.result.ok());
    CHECK(second.ticket == 6);
    CHECK(absl::IsResourceExhausted(second.result.status()));
  }
}

TEST_CASE("a job that failed on one rank failed on all", "[lockstep]") {
  const int victim = GENERATE(0, 1);
  const auto outcomes = InLockstep(2, [&](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    Waiting jobs;
    if (!lockstep.VersionsBy(jobs).Enqueue({.ticket = 1}).ok()) return {};
    VersionJobDone done = Read(1, absl::DataLossError("torn"));
    if (rank != victim) done.result = SpilledWeights();
    queue.Push(std::move(done));
    return {.round = Lockstep::Round{.items = NextItems(lockstep)}};
  });
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(outcomes[rank].round.has_value());
    const auto& done = std::get<VersionJobDone>(outcomes[rank].round->items.at(0));
    CHECK(absl::IsDataLoss(done.result.status()));
    CHECK_THAT(std::string(done.result.status().message()),
               Contains(rank == victim ? "torn" : "rank " + std::to_string(victim)));
  }
}

TEST_CASE("jobs of an older generation are ignored", "[lockstep]") {
  const auto outcomes = InLockstep(2, [](int, Lockstep& lockstep, auto& queue) -> Outcome {
    Waiting jobs;
    VersionJobs& numbered = lockstep.VersionsBy(jobs);
    if (!numbered.Enqueue({.generation = 3, .ticket = 1}).ok()) return {};
    if (!numbered.Enqueue({.generation = 4, .ticket = 1}).ok()) return {};
    queue.Push(Read(1, absl::DataLossError("late"), /*generation=*/3));
    if (!lockstep.Next({.generation = 4}).has_value()) return {};
    return {.round = lockstep.Next({.generation = 4})};
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    CHECK(outcome.round->items.empty());
  }
}

TEST_CASE("the outcome of a write by rank 0 is applied on the other ranks too", "[lockstep]") {
  class Full : public RecoveryJobs {
    absl::Status Enqueue(RecoveryJob) override { return absl::ResourceExhaustedError("full"); }
  };
  const auto outcomes = InLockstep(2, [](int, Lockstep& lockstep, auto&) -> Outcome {
    Full full;
    const WriteVersion work{.command = {.version_id = "v", .dir = "d"}, .ticket = 9};
    if (!lockstep.RecoveryBy(full).Enqueue({.work = work}).ok()) return {};
    return {.round = lockstep.Next({})};
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    const auto& done = std::get<RecoveryJobDone>(outcome.round->items.at(0));
    const auto& report = std::get<VersionSaved>(done.report);
    CHECK(done.ticket == 9);
    CHECK(report.version_id == "v");
    CHECK(report.dir == "d");
    CHECK(report.status == absl::ResourceExhaustedError("full"));
  }
}

TEST_CASE("a save that rank 0 has written is written for all, of whatever generation",
          "[lockstep]") {
  const auto outcomes = InLockstep(2, [](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    if (rank == 0) queue.Push(SaveWritten{7});
    return {.round = lockstep.Next({.generation = 3})};
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    CHECK(std::get<SaveWritten>(outcome.round->items.at(0)).num_bytes == 7);
  }
}

TEST_CASE("a job that the leader has no room for ends before older ones, on all ranks",
          "[lockstep]") {
  class RoomForOne : public RecoveryJobs {
   public:
    absl::Status Enqueue(RecoveryJob job) override {
      if (++num_jobs_ > 1) return absl::ResourceExhaustedError("full");
      first = std::move(job);
      return absl::OkStatus();
    }
    RecoveryJob first;

   private:
    int num_jobs_ = 0;
  };
  const auto outcomes = InLockstep(2, [](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    RoomForOne thread;
    RecoveryJobs& jobs = lockstep.RecoveryBy(thread);
    for (const int64_t ticket : {1, 2}) {
      if (!jobs.Enqueue({.work = WriteVersion{.ticket = ticket}}).ok()) return {};
    }
    Outcome outcome{.round = lockstep.Next({})};
    if (rank == 0) {
      queue.Push(
          RecoveryJobDone{.number = thread.first.number, .report = VersionSaved{}, .ticket = 1});
    }
    std::optional<Lockstep::Round> last = lockstep.Next({});
    if (!outcome.round || !last) return {};
    std::move(last->items.begin(), last->items.end(), std::back_inserter(outcome.round->items));
    return outcome;
  });
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.round.has_value());
    const std::vector<ExecutorItem>& items = outcome.round->items;
    REQUIRE(items.size() == 2);
    const auto& refused = std::get<RecoveryJobDone>(items[0]);
    const auto& written = std::get<RecoveryJobDone>(items[1]);
    CHECK(refused.ticket == 2);
    CHECK(absl::IsResourceExhausted(std::get<VersionSaved>(refused.report).status));
    CHECK(written.ticket == 1);
    CHECK(std::get<VersionSaved>(written.report).status.ok());
  }
}

TEST_CASE("when one rank stops all do", "[lockstep]") {
  const int stopper = GENERATE(0, 1);
  const auto outcomes = InLockstep(2, [&](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    if (rank == 0) queue.Push(Drop("a", "a"));  // only rank 0 gets commands
    return {.round = lockstep.Next({.wants_to_stop = rank == stopper}), .error = "none"};
  });
  for (const Outcome& outcome : outcomes) {
    CHECK_FALSE(outcome.round.has_value());
    CHECK(outcome.error == "none");
  }
}

TEST_CASE("ranks that are not the same end", "[lockstep]") {
  const auto outcomes = InLockstep(3, [](int rank, Lockstep& lockstep, auto&) -> Outcome {
    return {.round = lockstep.Next({.fingerprint = rank == 2 ? 1u : 2u})};
  });
  for (const Outcome& outcome : outcomes) {
    CHECK_THAT(outcome.error, Contains("rank 2 differs from rank 0"));
  }
}

TEST_CASE("a command that one rank cannot read ends it", "[lockstep]") {
  const auto outcomes = InLockstep(2, [](int rank, Lockstep& lockstep, auto& queue) -> Outcome {
    if (rank == 0) queue.Push(Drop("a", "damaged"));
    return {.round = lockstep.Next({})};
  });
  CHECK(outcomes[0].round.has_value());
  CHECK(outcomes[1].error == "no command");
}

TEST_CASE("a rank that has thrown waits as long as ever once all are at the same round",
          "[lockstep]") {
  FlightRecorder recorder;
  const CollectivesOptions options{
      .timeout = kTestPatience, .wait_limit = std::make_shared<WaitLimit>(absl::Milliseconds(500))};
  const auto ranks = MakeLocalCollectives("control", 2, options, recorder);
  const auto ok = InThreads(2, [&](int rank) {
    BoundedQueue<ExecutorItem> queue(16);
    const RankGroup control(*ranks[rank]);
    Lockstep lockstep(control, queue, {.idle = absl::Milliseconds(1)});
    control.LimitWaits("both are out of memory");
    try {
      lockstep.Next({});
      if (rank == 1) absl::SleepFor(absl::Seconds(1));
      lockstep.Next({});
    } catch (const RanksDisagree&) {
      return false;
    }
    return true;
  });
  CHECK(ok[0]);
  CHECK(ok[1]);
}

TEST_CASE("a rank that is gone ends the others", "[lockstep]") {
  const int victim = GENERATE(0, 1);
  FlightRecorder recorder;
  auto ranks = MakeLocalCollectives("control", 2, {.timeout = kTestPatience}, recorder);
  ranks[victim].reset();
  BoundedQueue<ExecutorItem> queue(16);
  const RankGroup control(*ranks[1 - victim]);
  Lockstep lockstep(control, queue, {.idle = absl::Milliseconds(1)});
  CHECK_THROWS_AS(lockstep.Next({}), RanksDisagree);
}

}  // namespace
}  // namespace lathe::worker
