#include "services/worker/collectives/agreement.h"

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/worker/collectives/slow_agreement.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

TEST_CASE("ranks wait for one whose work goes on, and that counts as progress on all", "[ranks]") {
  constexpr int kWorld = 3;
  std::array<std::atomic<int64_t>, kWorld> progress{};
  const auto outcomes = AsRanks(TestBackend::kLocal, kWorld, [&](Collectives& collectives) {
    const int rank = collectives.rank();
    const SlowWork work{.run = [&]() -> absl::Status {
                          if (rank != 1) return absl::OkStatus();
                          // Many turns: each moves the others' counts once.
                          while (progress[0] < 5 || progress[2] < 5) {
                            ++progress[1];
                            absl::SleepFor(absl::Milliseconds(1));
                          }
                          return absl::UnavailableError("away");
                        },
                        .cancel = [] {},
                        .progress = &progress[rank],
                        .turn = absl::Milliseconds(1)};
    return WaitForAllRanks(RankGroup(collectives), "fetch", work);
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK(absl::IsUnavailable(outcome));
    CHECK(outcome.message() == "rank 1: away");
  }
}

TEST_CASE("work that succeeded on all ranks is OK on all", "[collectives]") {
  const auto backend = GENERATE(TestBackend::kLocal, TestBackend::kGloo);
  const auto statuses = AsRanks(backend, 3, [](Collectives& collectives) {
    const RankGroup ranks(collectives);
    return AgreeOnStatus(ranks, "load", absl::OkStatus());
  });
  for (const absl::Status& status : statuses) CHECK(status.ok());
}

TEST_CASE("work that failed on one rank fails on all, and the error names the rank",
          "[collectives]") {
  const auto backend = GENERATE(TestBackend::kLocal, TestBackend::kGloo);
  const auto statuses = AsRanks(backend, 3, [](Collectives& collectives) {
    const RankGroup ranks(collectives);
    return AgreeOnStatus(
        ranks, "load",
        ranks.rank() == 0 ? absl::OkStatus() : absl::NotFoundError(std::string(2'000, 'x')));
  });
  for (const absl::Status& status : statuses) {
    CHECK(status == absl::NotFoundError("rank 1: " + std::string(1'000, 'x')));
  }
}

TEST_CASE("a rank alone agrees with itself", "[collectives]") {
  CHECK(AgreeOnStatus({}, "load", absl::NotFoundError("gone")) == absl::NotFoundError("gone"));
  CHECK(AgreeOnLeast({}, "least", 5) == 5);
  CHECK(NumRanksHere({}, "here") == 1);
}

TEST_CASE("numbers are agreed on", "[collectives]") {
  struct Numbers {
    int64_t least, first, here;
  };
  const auto numbers = AsRanks(TestBackend::kLocal, 2, [](Collectives& collectives) -> Numbers {
    const RankGroup ranks(collectives);
    const int64_t own = 7 - ranks.rank();
    return {.least = AgreeOnLeast(ranks, "least", own),
            .first = TakeFirst(ranks, "first", own),
            .here = NumRanksHere(ranks, "here")};
  });
  for (const Numbers& of_rank : numbers) {
    CHECK(of_rank.least == 6);
    CHECK(of_rank.first == 7);
    CHECK(of_rank.here == 2);
  }
}

}  // namespace
}  // namespace lathe::worker
