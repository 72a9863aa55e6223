#include "services/engine/leadership/process_name.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

namespace lathe::engine {
namespace {

// Returns the name of a child that has ended. Unless it is reaped, it is still in the process list.
std::string NameOfChild(bool is_reaped) {
  int pipe_fds[2] = {};
  REQUIRE(pipe(pipe_fds) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string name = ThisProcess();
    const bool ok = write(pipe_fds[1], name.data(), name.size()) > 0;
    _exit(ok ? 0 : 1);
  }
  close(pipe_fds[1]);
  std::string name(512, '\0');
  name.resize(read(pipe_fds[0], name.data(), name.size()));
  close(pipe_fds[0]);
  siginfo_t info{};
  waitid(P_PID, pid, &info, WEXITED | (is_reaped ? 0 : WNOWAIT));
  return name;
}

TEST_CASE("Process name: a process that runs has not ended", "[leadership]") {
  CHECK_FALSE(HasEnded(ThisProcess()));
  CHECK(DescribeProcess(ThisProcess()).find(std::to_string(getpid())) != std::string::npos);
}

TEST_CASE("Process name: a child that died has ended, reaped or not", "[leadership]") {
  CHECK(HasEnded(NameOfChild(/*is_reaped=*/true)));
  CHECK(HasEnded(NameOfChild(/*is_reaped=*/false)));
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

TEST_CASE("Process name: of other machines, namespaces and words nothing is known",
          "[leadership]") {
  const std::string ended = NameOfChild(/*is_reaped=*/true);
  const size_t boot = ended.rfind(':');
  CHECK_FALSE(HasEnded(ended.substr(0, boot) + ":other-boot"));
  const size_t space = ended.rfind(':', boot - 1);
  CHECK_FALSE(HasEnded(ended.substr(0, space) + ":1" + ended.substr(boot)));
  CHECK_FALSE(HasEnded(""));
  CHECK_FALSE(HasEnded("host:12"));
}

TEST_CASE("Process name: another process under an old number does not hide the end",
          "[leadership]") {
  const std::string mine = ThisProcess();
  const size_t pid_end = mine.find(':', mine.find(':') + 1);
  const size_t start_end = mine.find(':', pid_end + 1);
  CHECK(HasEnded(mine.substr(0, pid_end) + ":1" + mine.substr(start_end)));
}

}  // namespace
}  // namespace lathe::engine
