#include "services/worker/collectives/process_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"
#include "services/worker/testing/test_ranks.h"

namespace lathe::worker {
namespace {

// A process that does nothing until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ == 0) {
      pause();
      std::_Exit(0);
    }
  }
  ~Sleeper() { End(); }
  Sleeper(const Sleeper&) = delete;

  pid_t pid() const { return pid_; }
  void End() {
    if (has_ended_) return;
    has_ended_ = true;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
  bool has_ended_ = false;
};

// Number of on_end calls, by process number.
class Ends {
 public:
  void Add(int number) {
    absl::MutexLock lock(&mu_);
    ++calls_[number];
  }
  bool Await(int number) {
    absl::MutexLock lock(&mu_);
    const auto has_come = [&] { return calls_.contains(number); };
    return mu_.AwaitWithTimeout(absl::Condition(&has_come), kTestPatience);
  }
  std::map<int, int> calls() const {
    absl::MutexLock lock(&mu_);
    return calls_;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<int, int> calls_;
};

TEST_CASE("Process watch: reports each end once, and only ends", "[collectives]") {
  Sleeper first, second, third;
  Ends ends;
  {
    ProcessWatch watch([&](int number) { ends.Add(number); });
    REQUIRE(watch.Add(1, first.pid()));
    REQUIRE(watch.Add(2, second.pid()));
    REQUIRE(watch.Add(3, third.pid()));
    watch.Start();
    second.End();
    CHECK(ends.Await(2));
    first.End();
    CHECK(ends.Await(1));
  }
  third.End();
  CHECK(ends.calls() == std::map<int, int>{{1, 1}, {2, 1}});
}

TEST_CASE("Process watch: a process that ended before it was added is not watched",
          "[collectives]") {
  Sleeper sleeper;
  sleeper.End();
  ProcessWatch watch([](int) { FAIL("no process is watched"); });
  CHECK_FALSE(watch.Add(1, sleeper.pid()));
  watch.Start();
}

TEST_CASE("Process watch: a process that ended before the watch has started is reported",
          "[collectives]") {
  Sleeper sleeper;
  Ends ends;
  ProcessWatch watch([&](int number) { ends.Add(number); });
  REQUIRE(watch.Add(7, sleeper.pid()));
  sleeper.End();
  watch.Start();
  CHECK(ends.Await(7));
}

}  // namespace
}  // namespace lathe::worker
