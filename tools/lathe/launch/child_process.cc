#include "tools/lathe/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "tools/lathe/program.h"

namespace lathe::cli {
namespace {

std::vector<std::string> ChildEnvironment(const ChildSpec& spec) {
  std::vector<std::string> environment = EnvironmentWith(spec.overrides);
  for (const std::string& addition : spec.environment) {
    const std::string name = addition.substr(0, addition.find('='));
    if (std::getenv(name.c_str()) == nullptr) environment.push_back(addition);
  }
  return environment;
}

// Runs between fork and exec; makes only async-signal-safe calls.
[[noreturn]] void BecomeChild(char* const* arguments, char* const* environment, int log_fd,
                              int null_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // The parent died before the prctl.
  setpgid(0, 0);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) {
    signal(signal_number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  constexpr char kFailed[] = "cannot execute the program\n";
  if (write(STDERR_FILENO, kFailed, sizeof(kFailed) - 1) < 0) _exit(126);
  _exit(127);
}

}  // namespace

bool TrimLog(const std::filesystem::path& path, std::uintmax_t max_bytes) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) <= max_bytes || error) return false;
  // A child keeps the file open for appending, so the file itself has to stay.
  std::filesystem::copy_file(path, path.string() + ".1",
                             std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::resize_file(path, 0, error);
  return !error;
}

absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec) {
  TrimLog(spec.log_path, kMaxLogBytes);
  const int log_fd = open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) {
    return WithDetail(absl::UnavailableError(absl::StrCat("cannot write ", spec.log_path.string(),
                                                          ": ", std::strerror(errno))),
                      "cannot_create");
  }
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<std::string> arguments = spec.arguments;
  std::vector<std::string> environment = ChildEnvironment(spec);
  const std::vector<char*> argument_pointers = PointersTo(arguments);
  const std::vector<char*> environment_pointers = PointersTo(environment);
  const pid_t parent = getpid();
  // A signal must not run our handlers in the child.
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  const pid_t pid = fork();
  const int error = errno;
  if (pid == 0) {
    BecomeChild(argument_pointers.data(), environment_pointers.data(), log_fd, null_fd, parent);
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  close(log_fd);
  close(null_fd);
  if (pid < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start ", spec.name, ": ", std::strerror(error)));
  }
  return pid;
}

std::string DescribeExit(int wait_status) {
  return WIFSIGNALED(wait_status) ? absl::StrCat("signal ", WTERMSIG(wait_status))
                                  : absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

}  // namespace lathe::cli
