// Starts a child process that cannot outlive this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::cli {

struct ChildSpec {
  // engine, worker or gateway.
  std::string name;
  // Command line; the first element is the program's path.
  std::vector<std::string> arguments;
  // NAME=VALUE for variables that this process's environment does not set.
  std::vector<std::string> environment = {};
  // NAME=VALUE for variables that replace inherited ones. Secrets go here, not into `arguments`.
  std::vector<std::string> overrides = {};
  // File to which standard output and error are appended.
  std::filesystem::path log_path;
};

inline constexpr std::uintmax_t kMaxLogBytes = 64 << 20;

// Moves the lines of a log with over `max_bytes` to *.1, replacing that file. A child may go on
// writing; lines that it writes during the move may be lost. Returns whether the log is empty now.
bool TrimLog(const std::filesystem::path& path, std::uintmax_t max_bytes);

// Call from the main thread only: the child gets SIGKILL when the calling *thread* ends
// (PR_SET_PDEATHSIG). The child has its own process group, so that Ctrl-C reaches only this
// process. It starts with no signal blocked and with /dev/null as standard input.
absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec);

// Returns "exit code 78" or "signal 9" for a status from waitpid.
std::string DescribeExit(int wait_status);

}  // namespace lathe::cli
