// Errors of calls that cannot be done: wrong arguments, late ranks, ranks that have left.
#include <catch2/catch.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Counts the statuses that the ranks' on_failure callbacks received.
class Failures {
 public:
  std::function<void(const absl::Status&)> Callback() {
    return [this](const absl::Status& status) {
      absl::MutexLock lock(&mu_);
      seen_.push_back(status);
    };
  }
  size_t count() {
    absl::MutexLock lock(&mu_);
    return seen_.size();
  }

 private:
  absl::Mutex mu_;
  std::vector<absl::Status> seen_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

TEST_CASE("Collectives: a wrong argument is refused by name and costs nothing", "[collectives]") {
  struct Refusals {
    std::vector<absl::Status> statuses;
    bool works_after = false;
  };
  const auto results = AsRanks(AnyBackend(), 2, [](Collectives& ranks) {
    at::Tensor four = at::zeros({4}, at::kFloat);
    at::Tensor five = at::zeros({5}, at::kFloat);
    at::Tensor bytes = at::zeros({4}, at::kByte);
    Refusals refusals;
    refusals.statuses = {ranks.AllReduceSum("bytes", bytes),
                         ranks.AllGather("odd", four, five),
                         ranks.ReduceScatterSum("odd", five, four),
                         ranks.AllGather("mixed", bytes, at::zeros({8}, at::kFloat)),
                         ranks.Broadcast("nobody", 2, four),
                         ranks.AllReduceSum("rows", at::zeros({2, 2}, at::kFloat).t()),
                         ranks.AllReduceSum("nothing", at::Tensor())};
    refusals.works_after = ranks.AllReduceSum("four", four).ok() && ranks.totals().num_calls == 1;
    return refusals;
  });
  for (const Refusals& refusals : results) {
    std::vector<std::string> texts;
    for (const absl::Status& status : refusals.statuses) {
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      texts.push_back(Text(status));
    }
    CHECK(
        texts ==
        std::vector<std::string>{
            "collective bytes (all-reduce sum): dtype is Byte, must be Float, BFloat16, Double or "
            "Long",
            "collective odd (all-gather): the piece has 4 elements and the whole 5, must be 2 "
            "times as many",
            "collective odd (reduce-scatter sum): the piece has 4 elements and the whole 5, must "
            "be 2 times as many",
            "collective mixed (all-gather): input is Byte, output is Float",
            "collective nobody (broadcast): root is 2, must be in [0, 2)",
            "collective rows (all-reduce sum): input is not contiguous",
            "collective nothing (all-reduce sum): input is undefined"});
    CHECK(refusals.works_after);
  }
}

TEST_CASE("Collectives: a rank that does not come is a deadline's error that names the call",
          "[collectives]") {
  const TestBackend backend = AnyBackend();
  FlightRecorder recorder;
  Failures failures;
  auto ranks = MakeTestRanks(
      backend, 3, {.timeout = kTestPatience, .on_failure = failures.Callback()}, recorder);
  const auto results = InThreads(2, [&](int rank) {
    at::Tensor tensor = at::zeros({100}, at::kFloat);
    return ranks[rank]->AllReduceSum({"layers.3.o", absl::Milliseconds(300)}, tensor);
  });
  int num_deadlines = 0;
  for (const absl::Status& status : results) {
    if (status.code() == absl::StatusCode::kDeadlineExceeded) {
      ++num_deadlines;
      CHECK_THAT(Text(status), Contains("deadline of 300ms is over, waiting for rank 2"));
    } else {
      CHECK(status.code() == absl::StatusCode::kUnavailable);
    }
    CHECK_THAT(Text(status),
               Contains("collective layers.3.o (all-reduce sum, number 1) on axis tp"));
    CHECK_THAT(Text(status), Contains(" of 3 (") && Contains("400 bytes of Float, failed after "));
  }
  CHECK(num_deadlines >= 1);
  CHECK(failures.count() == 2);
  CHECK_THAT(recorder.Dump(),
             Matches("(.|\n)*tp #1 all-reduce sum layers.3.o Float x 100 started \\S+ failed \\S+\n"
                     "(.|\n)*"));
}

TEST_CASE("Collectives: after a failure every call returns it, and it is logged once",
          "[collectives]") {
  const TestBackend backend = AnyBackend();
  FlightRecorder recorder;
  Failures failures;
  auto ranks = MakeTestRanks(
      backend, 2, {.timeout = kTestPatience, .on_failure = failures.Callback()}, recorder);
  const absl::Status first = ranks[0]->Barrier({"start", absl::Milliseconds(50)});
  at::Tensor tensor = at::zeros({4}, at::kFloat);
  CHECK(first.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(ranks[0]->AllReduceSum("next", tensor) == first);
  CHECK(ranks[0]->StartAllGather("ahead", at::zeros({2}, at::kFloat), tensor).status() == first);
  CHECK(failures.count() == 1);
}

TEST_CASE("Collectives: a rank that has left is an error at once", "[collectives]") {
  const TestBackend backend = AnyBackend();
  FlightRecorder recorder;
  auto ranks = MakeTestRanks(backend, 3, {.timeout = absl::Hours(1)}, recorder);
  const auto results = InThreads(3, [&](int rank) {
    absl::Status status = ranks[rank]->Barrier("together");
    if (rank == 2) {
      ranks[2].reset();
      return status;
    }
    return ranks[rank]->Barrier("without rank 2");
  });
  CHECK(results[2].ok());
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(results[rank].code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(Text(results[rank]), Contains("collective without rank 2 (barrier, number 2)"));
    CHECK_THAT(Text(results[rank]), backend == TestBackend::kLocal
                                        ? Contains("rank 2 has left")
                                        : Contains("connection to rank 2 (2 in the mesh) is lost"));
  }
}

TEST_CASE("Collectives: a started gather has its deadline too", "[collectives]") {
  FlightRecorder recorder;
  auto ranks = MakeTestRanks(TestBackend::kGloo, 2, {.timeout = kTestPatience}, recorder);
  at::Tensor whole = at::zeros({4}, at::kFloat);
  auto pending = ranks[0]->StartAllGather({"layer 7", absl::Milliseconds(100)},
                                          at::zeros({2}, at::kFloat), whole);
  REQUIRE(pending.ok());
  const absl::Status status = ranks[0]->Wait(*std::move(pending));
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(Text(status), Contains("collective layer 7 (all-gather, number 1)"));
}

TEST_CASE("Local collectives: ranks that make different calls get both names", "[collectives]") {
  FlightRecorder recorder;
  auto ranks = MakeLocalCollectives("dp", 2, {.timeout = kTestPatience}, recorder);
  const auto results = InThreads(2, [&](int rank) {
    at::Tensor tensor = at::zeros({4}, at::kFloat);
    return rank == 0 ? ranks[0]->AllReduceSum("gradients", tensor)
                     : ranks[1]->AllReduceSum("norm", tensor);
  });
  for (const absl::Status& status : results) {
    CHECK_THAT(Text(status),
               Contains("rank 0 called gradients (all-reduce sum, number 1, 4 elements), rank 1 "
                        "called norm (all-reduce sum, number 1, 4 elements)"));
  }
}

}  // namespace lathe::worker
