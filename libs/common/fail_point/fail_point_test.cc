#include "libs/common/fail_point/fail_point.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "libs/common/fail_point/fail_point_list.h"

namespace lathe {
namespace {

constexpr char kPoint[] = "worker.save.fsync";

class TempDir {
 public:
  TempDir() {
    std::string path = (std::filesystem::temp_directory_path() / "lathe-fail-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Returns the wait status of a child process that has this environment and runs `body`.
int WaitStatusOf(std::initializer_list<std::pair<const char*, std::string>> environment,
                 const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name, value.c_str(), 1);
    const bool armed = ArmFailPoints("test").ok();
    _exit(armed ? body() : 99);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  if (WIFSTOPPED(status)) {
    kill(child, SIGKILL);
    int ignored = 0;
    waitpid(child, &ignored, 0);
  }
  return status;
}

// Returns "PASSED FIRED" of a point from the only file in `dir`.
std::string CountsIn(const TempDir& dir, const std::string& point) {
  for (const auto& entry : std::filesystem::directory_iterator(dir.string())) {
    std::ifstream file(entry.path());
    std::string name, passed, fired;
    while (file >> name >> passed >> fired) {
      if (name == point) return passed + " " + fired;
    }
  }
  return "none";
}

TEST_CASE("FailPoint: off by default", "[fail_point]") {
  CHECK(FailPointErrno(kPoint) == 0);
  CHECK(ArmFailPoints("test").ok());
  CHECK(FailPointErrno(kPoint) == 0);
}

TEST_CASE("FailPoint: an error comes at the passes that were asked for", "[fail_point]") {
  REQUIRE(SetFailPointsForTest("worker.save.fsync=error:28@2,worker.save.fsync=error@4+").ok());
  CHECK(FailPointErrno(kPoint) == 0);
  CHECK(FailPointErrno(kPoint) == ENOSPC);
  CHECK(FailPointErrno(kPoint) == 0);
  CHECK(FailPointErrno(kPoint) == EIO);
  CHECK(FailPointErrno(kPoint) == EIO);
  CHECK(FailPointErrno("worker.save.write") == 0);
  REQUIRE(SetFailPointsForTest("").ok());
  CHECK(FailPointErrno(kPoint) == 0);
}

TEST_CASE("FailPoint: a fail point of the list can skip the code after it", "[fail_point]") {
  REQUIRE(SetFailPointsForTest("worker.save.write=skip@2").ok());
  CHECK(FailPointErrno("worker.save.write") == 0);
  CHECK(FailPointErrno("worker.save.write") == kFailPointSkip);
  CHECK(FailPointErrno("worker.save.write") == 0);
  REQUIRE(SetFailPointsForTest("").ok());
}

TEST_CASE("FailPoint: a probability fires sometimes", "[fail_point]") {
  REQUIRE(SetFailPointsForTest("worker.save.fsync=error%0.5").ok());
  int num_fired = 0;
  for (int pass = 0; pass < 1000; ++pass) num_fired += FailPointErrno(kPoint) != 0;
  CHECK(num_fired > 300);
  CHECK(num_fired < 700);
  REQUIRE(SetFailPointsForTest("").ok());
}

TEST_CASE("FailPoint: actions end or stop the process by their signal", "[fail_point]") {
  const auto [action, signal] = GENERATE(table<std::string, int>(
      {{"kill", SIGKILL}, {"abort", SIGABRT}, {"segv", SIGSEGV}, {"stop", SIGSTOP}}));
  const int status = WaitStatusOf({{"LATHE_FAIL_POINTS", "engine.tick=" + action}}, [] {
    // Catch would report the signal as a failed test.
    ::signal(SIGABRT, SIG_DFL);
    // Blocks all signals, like the threads of a service.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    FailPoint("engine.tick");
    return 0;
  });
  if (WIFSTOPPED(status)) {
    CHECK(WSTOPSIG(status) == signal);
  } else {
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
  }
}

TEST_CASE("FailPoint: a killed process has counted its last pass", "[fail_point]") {
  const TempDir dir;
  const int status = WaitStatusOf(
      {{"LATHE_FAIL_POINTS", "engine.tick=kill@3"}, {"LATHE_FAIL_POINT_COUNTS", dir.string()}}, [] {
        for (;;) FailPoint("engine.tick");
        return 0;
      });
  CHECK(WIFSIGNALED(status));
  CHECK(CountsIn(dir, "engine.tick") == "3 1");
  CHECK(CountsIn(dir, "engine.accept") == "0 0");
}

TEST_CASE("FailPoint: a file that comes later is obeyed", "[fail_point]") {
  const TempDir dir;
  const std::string path = (dir / "rules").string();
  const int status = WaitStatusOf({{"LATHE_FAIL_POINTS_FILE", path}}, [&] {
    if (FailPointErrno(kPoint) != 0) return 1;
    std::ofstream(path) << "worker.save.fsync=error:28\n";
    int seen = 0;
    while (seen == 0) seen = FailPointErrno(kPoint);
    std::filesystem::remove(path);
    while (FailPointErrno(kPoint) != 0) continue;
    return seen;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == ENOSPC);
}

TEST_CASE("FailPoint: a rule for another process is not ours", "[fail_point]") {
  REQUIRE(SetFailPointsForTest("worker.save.fsync=error#1").ok());
  CHECK(FailPointErrno(kPoint) == 0);
  REQUIRE(SetFailPointsForTest("worker.save.fsync=error#" + std::to_string(getpid())).ok());
  CHECK(FailPointErrno(kPoint) == EIO);
  REQUIRE(SetFailPointsForTest("").ok());
}

TEST_CASE("FailPoint: a process with a rule that is wrong does not start", "[fail_point]") {
  const auto [name, value] = GENERATE(table<std::string, std::string>(
      {{"LATHE_FAIL_POINTS", "engine.nothing=kill"}, {"LATHE_FAIL_SEED", "x"}}));
  const int status = WaitStatusOf({{name.c_str(), value}}, [] { return 0; });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 99);
}

}  // namespace
}  // namespace lathe
