#include "tools/lathe/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

constexpr int kSignalExit = 128;

// Reads `fd` to its end. Returns false if `deadline` came before.
bool ReadUntil(int fd, absl::Time deadline, std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = absl::ToInt64Milliseconds(deadline - SteadyNow());
    if (left <= 0) return false;
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, static_cast<int>(left)) < 0 && errno != EINTR) return false;
    if (waiting.revents == 0) continue;
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count == 0) return true;
    if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) return false;
  }
}

int ExitCodeOfWait(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalExit + WTERMSIG(status);
}

}  // namespace

absl::StatusOr<ProgramRun> RunProgram(const std::vector<std::string>& arguments,
                                      absl::Duration limit,
                                      const std::vector<std::string>& additions) {
  std::vector<std::string> words = arguments;
  std::vector<std::string> variables = EnvironmentWith(additions);
  const std::vector<char*> argv = PointersTo(words);
  const std::vector<char*> envp = PointersTo(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::UnavailableError(
        absl::StrCat("cannot run ", arguments[0], ": ", std::strerror(error)));
  }
  ProgramRun run;
  const bool has_ended = ReadUntil(ends[0], SteadyNow() + limit, run.output);
  close(ends[0]);
  if (!has_ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended) {
    return absl::DeadlineExceededError(
        absl::StrCat(arguments[0], " gave no answer within ", absl::FormatDuration(limit)));
  }
  run.exit_code = ExitCodeOfWait(status);
  return run;
}

}  // namespace lathe::cli
