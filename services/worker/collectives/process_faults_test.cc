// Ranks as processes that die, hang or skip a call. The children are this program again, running
// the hidden test case below.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "services/worker/testing/test_ranks.h"

extern char** environ;

namespace lathe::worker {
namespace {

using Catch::Matchers::Contains;

constexpr int kWorld = 3;
constexpr int kVictim = 2;
// Exit code of a child that got the expected error.
constexpr int kSawFailure = 42;
constexpr absl::Duration kDeadline = absl::Seconds(2);

RendezvousOptions OptionsOfRank(int rank) {
  return {.rank = rank, .world = kWorld, .session = "faults", .timeout = kTestPatience};
}

std::unique_ptr<Collectives> Connect(Rendezvous& rendezvous, int rank, const std::string& backend,
                                     FlightRecorder& recorder) {
  const SubMesh place = TestPlace(rank, kWorld);
  const CollectivesOptions options{.timeout = kTestPatience};
  if (backend == "shared memory") {
    return ConnectSharedMemory(rendezvous, place, options, recorder).value();
  }
  return ConnectGloo(rendezvous, OpenGlooDevice("127.0.0.1").value(), place, options, recorder)
      .value();
}

// Runs on every rank until something fails. The victim commits `fault` before its third call.
absl::Status Work(Rendezvous& rendezvous, int rank, const std::string& backend,
                  const std::string& fault, FlightRecorder& recorder) {
  const std::unique_ptr<Collectives> ranks = Connect(rendezvous, rank, backend, recorder);
  at::Tensor tensor = at::ones({100'000}, at::kFloat);
  for (int step = 1; step <= 10; ++step) {
    if (rank == kVictim && step == 3) {
      if (fault == "dies") raise(SIGKILL);
      if (fault == "stops") raise(SIGSTOP);
      if (fault == "skips a call") continue;
    }
    // The first call may wait for a child that starts slowly.
    const absl::Duration timeout = step == 1 ? kTestPatience : kDeadline;
    const absl::Status status = ranks->AllReduceSum({absl::StrCat("step ", step), timeout}, tensor);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

class Child {
 public:
  Child(int rank, uint16_t port, const std::string& backend, const std::string& fault) {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable)
      variables.push_back(*variable);
    variables.push_back(absl::StrCat("LATHE_TEST_RANK=", rank));
    variables.push_back(absl::StrCat("LATHE_TEST_PORT=", port));
    variables.push_back(absl::StrCat("LATHE_TEST_BACKEND=", backend));
    variables.push_back(absl::StrCat("LATHE_TEST_FAULT=", fault));
    std::vector<char*> pointers;
    for (std::string& variable : variables) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    std::string program = "/proc/self/exe", test = "[.faultyrank]";
    char* arguments[] = {program.data(), test.data(), nullptr};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    REQUIRE(posix_spawn(&pid_, program.c_str(), &quiet, nullptr, arguments, pointers.data()) == 0);
    posix_spawn_file_actions_destroy(&quiet);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

  // Returns -1 after a signal.
  int ExitCode() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace

// Runs only as a child process: one rank of the test below.
TEST_CASE("Collectives: a rank of the test of faults", "[.faultyrank]") {
  const char* rank_text = std::getenv("LATHE_TEST_RANK");
  if (rank_text == nullptr) return;
  alarm(absl::ToInt64Seconds(2 * kTestPatience));
  const int rank = std::atoi(rank_text);
  const auto port = static_cast<uint16_t>(std::atoi(std::getenv("LATHE_TEST_PORT")));
  FlightRecorder recorder;
  auto rendezvous = Rendezvous::Join("127.0.0.1", port, OptionsOfRank(rank)).value();
  const absl::Status status = Work(*rendezvous, rank, std::getenv("LATHE_TEST_BACKEND"),
                                   std::getenv("LATHE_TEST_FAULT"), recorder);
  // Ends as a worker does: at once, whatever is still open.
  std::_Exit(status.ok() ? 0 : kSawFailure);
}

TEST_CASE("Collectives: others leave when a process dies, hangs or skips a call", "[collectives]") {
  const std::string backend = GENERATE("gloo", "shared memory");
  const std::string fault = GENERATE("dies", "stops", "skips a call");
  INFO(backend << ", the victim " << fault);
  ListeningSocket socket = ListeningSocket::Open("127.0.0.1").value();
  Child bystander(1, socket.port(), backend, fault);
  Child victim(kVictim, socket.port(), backend, fault);
  FlightRecorder recorder;
  absl::Status status;
  {
    auto rendezvous = Rendezvous::Serve(std::move(socket), OptionsOfRank(0)).value();
    status = Work(*rendezvous, 0, backend, fault, recorder);
  }
  CHECK(bystander.ExitCode() == kSawFailure);
  const std::string text(status.message());
  CHECK_THAT(text, Contains("collective step ") && Contains("(all-reduce sum, number ") &&
                       Contains(" on axis tp, rank 0 of 3 (0 in the mesh), 400000 bytes of Float"));
  if (fault == "dies") {
    CHECK_THAT(text, Contains("collective step 3 ") && Contains("is lost: "));
  } else if (fault == "stops") {
    // Rank 0's own deadline may expire, or the bystander's expires first.
    CHECK_THAT(text, Contains("collective step 3 ") &&
                         (Contains("deadline of 2s is over") || Contains("is lost: ")));
  }
  CHECK_THAT(recorder.Dump(),
             Contains("#2 all-reduce sum step 2 Float x 100000 started") && Contains(" failed +"));
}

TEST_CASE("Gloo collectives: a write to a rank that is gone does not end the process",
          "[collectives]") {
  const auto device = OpenGlooDevice("127.0.0.1").value();
  CHECK(raise(SIGPIPE) == 0);
}

}  // namespace lathe::worker
