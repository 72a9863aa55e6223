#include "tools/lathe/commands/drain_command.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "libs/common/metrics/pid_header.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"
#include "tools/lathe/commands/probed_page.h"
#include "tools/lathe/launch/http_get.h"

namespace lathe::cli {
namespace {

constexpr char kDrainDescription[] =
    "Asks a process of this machine to drain and end, like SIGTERM, and waits for its end. A "
    "supervised\nprocess ends with the `lathe up` or `lathe ranks` that supervises it.";
constexpr absl::Duration kPageTimeout = absl::Seconds(2);

absl::Status NotRunning(const std::string& message) {
  return WithDetail(absl::UnavailableError(message), "not_running");
}

// Returns the file name of the program that a process runs; "" if it is not this user's.
std::string ProgramOf(pid_t pid) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error);
  return error ? "" : path.filename().string();
}

// Returns 0 if the process is gone.
pid_t ParentOf(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  pid_t parent = 0;
  while (status >> word) {
    if (word == "PPid:") status >> parent;
  }
  return parent;
}

// A replaced file's name ends so.
bool IsProgram(const std::string& program, const std::string& name) {
  return program == name || program == name + " (deleted)";
}

// Returns the process that answers on the page.
absl::StatusOr<pid_t> ProcessOf(const ListenAddress& page) {
  const absl::StatusOr<HttpAnswer> answer = HttpGet(page, "/livez", kPageTimeout);
  if (!answer.ok()) return NotRunning(absl::StrCat(page.Url(), ": ", answer.status().message()));
  const std::string field = absl::StrCat("\r\n", kPidHeader, ": ");
  const std::size_t begin = answer->head.find(field);
  pid_t pid = 0;
  if (begin == std::string::npos ||
      !absl::SimpleAtoi(
          answer->head.substr(begin + field.size(),
                              answer->head.find('\r', begin + 2) - begin - field.size()),
          &pid)) {
    return WithDetail(absl::InvalidArgumentError(absl::StrCat(
                          page.Url(), " is no page of metrics, so it names no process")),
                      "usage");
  }
  if (absl::StartsWith(ProgramOf(pid), "lathe")) return pid;
  return NotRunning(absl::StrCat("process ", pid, ", which ", page.Url(),
                                 " names, is not a Lathe program of this machine and user"));
}

// Returns the supervisor of the process, or else the process.
pid_t SupervisorOf(pid_t pid) {
  const pid_t parent = ParentOf(pid);
  return parent > 0 && IsProgram(ProgramOf(parent), "lathe") ? parent : pid;
}

absl::Status EndProcess(pid_t pid, absl::Duration wait) {
  const std::string name = absl::StrCat(ProgramOf(pid), " (process ", pid, ")");
  // The header of glibc 2.36 for these calls is not for C++.
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return NotRunning(absl::StrCat(name, ": ", std::strerror(errno)));
  const absl::Time deadline = SteadyNow() + wait;
  if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, nullptr, 0) != 0) {
    const int error = errno;
    close(fd);
    return NotRunning(absl::StrCat(name, ": ", std::strerror(error)));
  }
  pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
  int ready = -1;
  while (ready < 0) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
    ready = poll(&ended, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno != EINTR) break;
  }
  close(fd);
  if (ready > 0) {
    std::printf("%s has ended\n", name.c_str());
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat(name, " drains and has not ended within ", absl::FormatDuration(wait)));
}

}  // namespace

absl::Status DrainCommand(int argc, const char* const* argv) {
  PageOptions pages;
  std::string program, url;
  absl::Duration wait;
  OptionSet options("lathe drain", kDrainDescription);
  options.Add(&wait, "drain.wait", absl::Seconds(30), "maximum time to wait for the end");
  options.Add(&program, "drain.of", "",
              "gateway, engine, worker, up or ranks: the program whose page names the process, if "
              "the configuration has several",
              {.choices = {"gateway", "engine", "worker", "up", "ranks"}});
  AddPageOptions(options, pages);
  options.AddPositional(&url, "URL", "http://HOST:PORT of the process's page", /*required=*/false);
  RETURN_IF_ERROR(options.Parse(argc, argv));
  ListenAddress page;
  if (url.empty()) {
    ASSIGN_OR_RETURN(page, FindPage(pages, program));
  } else {
    ASSIGN_OR_RETURN(const ProbeTarget target, ParseProbeUrl(url));
    page = target.address;
  }
  ASSIGN_OR_RETURN(const pid_t pid, ProcessOf(page));
  return EndProcess(SupervisorOf(pid), wait);
}

}  // namespace lathe::cli
