#include "services/worker/collectives/transports/transports.h"

#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libs/common/time/clock.h"
#include "services/worker/collectives/transports/shared_segment.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

// Makes calls of all kinds and sizes in an order that depends on `seed`. Returns a digest of the
// results.
absl::StatusOr<at::Tensor> Mixture(Collectives& ranks, int64_t seed) {
  at::Tensor digest = at::zeros({1}, at::kDouble);
  for (int64_t i = 0; i < 120; ++i) {
    const int64_t size = 1 + (seed + i * 7919) % (i % 10 == 0 ? 300'000 : 3000);
    at::Tensor piece = at::arange(size, at::kFloat).mul(0.01F * (1.0F + ranks.rank())).sin();
    at::Tensor whole = piece.repeat({ranks.world()});
    absl::Status status;
    switch ((seed + i) % 5) {
      case 0:
        status = ranks.AllReduceSum("sum", whole);
        break;
      case 1:
        status = ranks.AllGather("gather", piece, whole);
        break;
      case 2:
        status = ranks.ReduceScatterSum("scatter", whole, piece);
        // Each rank has another piece, so sum them.
        if (status.ok()) status = ranks.AllReduceSum("pieces", piece);
        whole = piece;
        break;
      case 3:
        status = ranks.Broadcast("broadcast", static_cast<int>(i % ranks.world()), whole);
        break;
      default:
        status = ranks.AllReduceMax("max", whole);
    }
    if (!status.ok()) return status;
    digest = digest * 0.9 + whole.to(at::kDouble).sum();
  }
  return digest;
}

TEST_CASE("Shared memory: thousands of calls of all sizes give what threads of one process give",
          "[collectives]") {
  const int world = GENERATE(2, 3, 4);
  const int64_t seed = GENERATE(1, 2);
  const auto of = [&](TestBackend backend) {
    return AsRanks(backend, world, [&](Collectives& ranks) { return Mixture(ranks, seed); });
  };
  const auto shared = of(TestBackend::kSharedMemory);
  const auto local = of(TestBackend::kLocal);
  for (int rank = 0; rank < world; ++rank) {
    REQUIRE(shared[rank].ok());
    CHECK(at::equal(*shared[rank], *local[rank]));
    CHECK(at::equal(*shared[rank], *shared[0]));
  }
}

TEST_CASE("Shared memory: a rank that calls something else is an error on both", "[collectives]") {
  FlightRecorder recorder;
  auto ranks = MakeTestRanks(TestBackend::kSharedMemory, 2, {.timeout = kTestPatience}, recorder);
  const auto results = InThreads(2, [&](int rank) {
    at::Tensor tensor = at::zeros({4 + rank}, at::kFloat);
    return ranks[rank]->AllReduceSum("gradients", tensor);
  });
  CHECK_THAT(std::string(results[0].message()),
             Contains("rank 1 called all-reduce sum, number 1, 20 bytes of Float, root 0"));
  CHECK_THAT(std::string(results[1].message()),
             Contains("rank 0 called all-reduce sum, number 1, 16 bytes of Float, root 0"));
}

TEST_CASE("Shared memory: a call of another name is not taken for this one", "[collectives]") {
  FlightRecorder recorder;
  auto ranks = MakeTestRanks(TestBackend::kSharedMemory, 2, {.timeout = kTestPatience}, recorder);
  const auto results = InThreads(2, [&](int rank) {
    at::Tensor whole = at::zeros({8}, at::kFloat);
    return ranks[rank]->AllGather(rank == 0 ? "part of model a" : "part of model b",
                                  whole.narrow(0, 4 * rank, 4), whole);
  });
  for (const absl::Status& status : results) {
    CHECK_THAT(std::string(status.message()), Contains("under another name"));
  }
}

TEST_CASE("Shared memory: another process's memory is not taken for that of the ranks",
          "[collectives]") {
  const auto segment = SharedSegment::Create(2).value();
  CHECK(SharedSegment::Open(segment->handle(), 1, 2).ok());
  CHECK(absl::IsUnavailable(SharedSegment::Open(segment->handle(), 1, 3).status()));
  CHECK(absl::IsUnavailable(
      SharedSegment::Open(absl::StrCat(segment->handle(), "1"), 1, 2).status()));
  CHECK(absl::IsUnavailable(SharedSegment::Open("/proc/1/fd/1000000 7", 1, 2).status()));
  CHECK(absl::IsUnavailable(SharedSegment::Open("none", 1, 2).status()));
}

TEST_CASE("Shared memory: a handle of anything else is refused before it is opened",
          "[collectives]") {
  const auto refusal = [](const std::string& path) {
    return std::string(SharedSegment::Open(path + " 7", 1, 2).status().message());
  };
  CHECK_THAT(refusal("/dev/null"), Contains("'/dev/null' is no memory of ranks: it is no descr"));
  CHECK_THAT(refusal("/proc/self/fd/0"), Contains("it is no descriptor of a process"));
  CHECK_THAT(refusal("/proc/1/fd/../environ"), Contains("it is no descriptor of a process"));
  // The path and size could be right, but it is a file.
  char name[] = "/tmp/lathe-segment-XXXXXX";
  const int file = mkstemp(name);
  const int other = memfd_create("other", MFD_CLOEXEC);
  const auto path_of = [](int fd) { return absl::StrCat("/proc/", getpid(), "/fd/", fd); };
  CHECK_THAT(refusal(path_of(file)), Contains(absl::StrCat("it is ", name)));
  CHECK_THAT(refusal(path_of(other)), Contains("it is /memfd:other (deleted)"));
  unlink(name);
  close(file);
  close(other);
}

TEST_CASE("Shared memory: a rank that is late is waited for without looking again and again",
          "[collectives]") {
  const auto first = SharedSegment::Create(2).value();
  const auto second = SharedSegment::Open(first->handle(), 1, 2).value();
  first->WatchOthers();
  first->Enter({});
  CHECK(first->Await(1, SteadyNow() + absl::Milliseconds(300)) == SharedSegment::Arrival::kLate);
  CHECK(first->num_sleeps() <= 2);  // one, or two if the clock that ends it is a little ahead
}

TEST_CASE("Shared memory: a rank's end wakes the ranks that wait for it", "[collectives]") {
  const auto first = SharedSegment::Create(2).value();
  const bool is_process = GENERATE(true, false);
  int ready_pipe[2];
  REQUIRE(pipe(ready_pipe) == 0);
  const pid_t child = is_process ? fork() : 0;
  if (is_process && child == 0) {
    const auto own = SharedSegment::Open(first->handle(), 1, 2);
    if (own.ok() && write(ready_pipe[1], "1", 1) == 1) pause();
    std::_Exit(1);
  }
  std::unique_ptr<SharedSegment> second;
  if (is_process) {
    char byte;
    REQUIRE(read(ready_pipe[0], &byte, 1) == 1);
  } else {
    second = SharedSegment::Open(first->handle(), 1, 2).value();
  }
  first->WatchOthers();
  first->Enter({});
  SharedSegment::Arrival arrival{};
  std::thread waiting([&] { arrival = first->Await(1, SteadyNow() + kTestPatience); });
  if (is_process) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  } else {
    second.reset();
  }
  waiting.join();
  CHECK(arrival == SharedSegment::Arrival::kGone);
  CHECK(first->num_sleeps() <= 1);
  close(ready_pipe[0]);
  close(ready_pipe[1]);
}

TEST_CASE("Collectives of CPUs: ranks that share no memory communicate over Gloo",
          "[collectives]") {
  const bool share = GENERATE(false, true);
  const auto rendezvous = RendezvousOnLoopback(2);
  FlightRecorder recorder;
  const auto sums = InThreads(2, [&](int rank) {
    const CollectivesOptions options{.timeout = kTestPatience};
    const SubMesh place = TestPlace(rank, 2);
    std::unique_ptr<Collectives> ranks;
    if (!share && rank == 1) {
      // Simulates a rank of another host, where rank 0's handle is invalid.
      TORCH_CHECK(rendezvous[1]->Set("shared/tp/0/reason/1", "cannot open shared memory").ok());
      ranks =
          ConnectGloo(*rendezvous[1], OpenGlooDevice("127.0.0.1").value(), place, options, recorder)
              .value();
    } else {
      ranks = ConnectCpus(*rendezvous[rank], OpenGlooDevice("127.0.0.1").value(), place, options,
                          recorder)
                  .value();
    }
    at::Tensor tensor = at::full({3}, 1.0 + rank, at::kFloat);
    TORCH_CHECK(ranks->AllReduceSum("sum", tensor).ok());
    return tensor;
  });
  for (const at::Tensor& sum : sums) CHECK(at::equal(sum, at::full({3}, 3.0, at::kFloat)));
}

}  // namespace
}  // namespace lathe::worker
