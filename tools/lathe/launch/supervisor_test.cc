#include "tools/lathe/launch/supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "tools/lathe/testing/temp_dir.h"

namespace lathe::cli {
namespace {

struct Fixture {
  TempDir dir;
  FakeClock clock;
  Supervisor supervisor{clock};

  void StartShell(const std::string& script, const std::string& name = "child") {
    REQUIRE(supervisor
                .Start({.name = name,
                        .arguments = {"/bin/sh", "-c", script},
                        .log_path = dir.path() / (name + ".log")})
                .ok());
  }

  // Waits without a limit until a child ends.
  ChildExit WaitForExit() {
    while (true) {
      const std::vector<ChildExit> exits = supervisor.Reap();
      if (!exits.empty()) return exits.front();
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  void WaitForLog(const std::string& text, const std::string& name = "child") {
    while (!absl::StrContains(supervisor.LogTail(name), text)) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
};

TEST_CASE("A child that dies when ready is started again at once", "[supervisor]") {
  Fixture f;
  f.StartShell("echo up; sleep 1000 & wait");
  f.WaitForLog("up");
  f.supervisor.MarkReady("child");
  const pid_t first = f.supervisor.Pid("child");
  kill(first, SIGKILL);
  const ChildExit exit = f.WaitForExit();
  CHECK(exit.was_ready);
  CHECK(DescribeExit(exit.wait_status) == "signal 9");
  CHECK(f.supervisor.UntilNextRestart() == absl::ZeroDuration());
  CHECK(f.supervisor.RestartDue()->size() == 1);
  CHECK(f.supervisor.Pid("child") != first);
  CHECK_FALSE(f.supervisor.IsReady("child"));
  f.supervisor.Stop({"child"}, absl::Seconds(60));
}

TEST_CASE("Deaths before readiness are backed off, twice as long each time", "[supervisor]") {
  Fixture f;
  f.StartShell("exit 3");
  absl::Duration expected = absl::Milliseconds(100);
  for (int death = 1; death <= 10; ++death) {
    const ChildExit exit = f.WaitForExit();
    CHECK(exit.early_deaths == death);
    CHECK(DescribeExit(exit.wait_status) == "exit code 3");
    CHECK(f.supervisor.UntilNextRestart() == expected);
    CHECK(f.supervisor.RestartDue()->empty());
    f.clock.Advance(expected);
    CHECK(f.supervisor.RestartDue()->size() == 1);
    expected = std::min(2 * expected, absl::Seconds(10));
  }
  f.WaitForExit();
}

TEST_CASE("A child that crashed before it was killed was not asked to end", "[supervisor]") {
  Fixture f;
  const bool crashes = GENERATE(true, false);
  f.StartShell(crashes ? "kill -SEGV $$" : "echo up; exec sleep 1000");
  const pid_t pid = f.supervisor.Pid("child");
  if (crashes) {
    siginfo_t info;
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  } else {
    f.WaitForLog("up");
  }
  f.supervisor.Kill("child", pid);
  const ChildExit exit = f.WaitForExit();
  CHECK(WTERMSIG(exit.wait_status) == (crashes ? SIGSEGV : SIGKILL));
  CHECK(exit.was_asked == !crashes);
}

TEST_CASE("Being ready once makes earlier deaths forgotten", "[supervisor]") {
  Fixture f;
  f.StartShell("exit 3");
  f.WaitForExit();
  f.clock.Advance(absl::Seconds(1));
  REQUIRE(f.supervisor.RestartDue().ok());
  f.supervisor.MarkReady("child");
  CHECK(f.WaitForExit().early_deaths == 0);
}

TEST_CASE("A child's output since its last start can be read back", "[supervisor]") {
  Fixture f;
  f.dir.Write("child.log", "of an earlier run\n");
  f.StartShell("echo out; echo err >&2; cat; exit 78");
  CHECK(DescribeExit(f.WaitForExit().wait_status) == "exit code 78");
  CHECK(f.supervisor.LogTail("child") == "out\nerr\n");
  CHECK(f.supervisor.LogTail("child", 6) == "err\n");
}

TEST_CASE("A running child's long log is moved aside, and it writes on", "[supervisor]") {
  Fixture f;
  const std::string go = f.dir.path() / "go";
  f.StartShell("echo first; while [ ! -e " + go +
               " ]; do sleep 0.01; done; echo second; sleep 1000");
  f.WaitForLog("first");
  f.supervisor.TrimLogs(/*max_bytes=*/100);
  CHECK(f.supervisor.LogTail("child") == "first\n");
  f.supervisor.TrimLogs(/*max_bytes=*/5);
  CHECK(std::filesystem::file_size(f.dir.path() / "child.log.1") == 6);
  CHECK(f.supervisor.LogTail("child").empty());
  f.dir.Write("go", "");
  f.WaitForLog("second");
  CHECK(f.supervisor.LogTail("child") == "second\n");
  f.supervisor.Stop({"child"}, absl::Milliseconds(50));
}

TEST_CASE("A program that cannot be executed ends with 127", "[supervisor]") {
  Fixture f;
  REQUIRE(f.supervisor
              .Start({.name = "child",
                      .arguments = {"/nonexistent/program"},
                      .log_path = f.dir.path() / "child.log"})
              .ok());
  CHECK(DescribeExit(f.WaitForExit().wait_status) == "exit code 127");
  CHECK(f.supervisor.LogTail("child") == "cannot execute the program\n");
}

TEST_CASE("Several are asked to stop before the first is waited for", "[supervisor]") {
  Fixture f;
  const std::string file = f.dir.path() / "asked";
  f.StartShell("trap 'while [ ! -e " + file +
                   " ]; do sleep 0.01; done; echo bye; exit 0' TERM; echo up; "
                   "while :; do sleep 0.01; done",
               "first");
  f.StartShell("trap 'touch " + file + "; exit 0' TERM; echo up; while :; do sleep 0.01; done",
               "second");
  f.WaitForLog("up", "first");
  f.WaitForLog("up", "second");
  f.supervisor.Stop({"first", "second"}, absl::Seconds(60));
  CHECK(absl::StrContains(f.supervisor.LogTail("first"), "bye"));
}

TEST_CASE("Stopping asks first and insists after the grace", "[supervisor]") {
  Fixture f;
  SECTION("a child that obeys") {
    f.StartShell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
    f.WaitForLog("up");
    f.supervisor.Stop({"child"}, absl::Seconds(60));
    CHECK(absl::StrContains(f.supervisor.LogTail("child"), "bye"));
  }
  SECTION("a child that does not") {
    f.StartShell("trap '' TERM; echo up; while :; do sleep 0.01; done");
    f.WaitForLog("up");
    f.supervisor.Stop({"child"}, absl::Milliseconds(50));
  }
  CHECK(kill(f.supervisor.Pid("child"), 0) != 0);
  CHECK(f.supervisor.Reap().empty());
}

TEST_CASE("A child dies with the one that started it", "[supervisor]") {
  const TempDir dir;
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto pid = SpawnChild({.name = "child",
                                 .arguments = {"/bin/sleep", "1000"},
                                 .log_path = dir.path() / "child.log"});
    _exit(write(pipe_fds[1], &*pid, sizeof(*pid)) == sizeof(*pid) ? 0 : 1);
  }
  pid_t child = 0;
  REQUIRE(read(pipe_fds[0], &child, sizeof(child)) == sizeof(child));
  int wait_status;
  waitpid(parent, &wait_status, 0);
  REQUIRE(WIFEXITED(wait_status));
  // Another process reaps the orphan. A zombie still answers signal 0, so read its state.
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  const auto is_alive = [&] {
    std::ifstream file(stat);
    std::string line;
    return std::getline(file, line) && !absl::StrContains(line, ") Z ");
  };
  while (is_alive()) absl::SleepFor(absl::Milliseconds(1));
  SUCCEED();
}

}  // namespace
}  // namespace lathe::cli
