// Starting a child that cannot outlive us.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lathe::cli {

struct ChildSpec {
  // engine, worker or gateway.
  std::string name;
  // The first is the program's path.
  std::vector<std::string> arguments;
  // NAME=VALUE, for variables that are not set already.
  std::vector<std::string> environment = {};
  // NAME=VALUE, whatever is set; also what must not be seen on a command line.
  std::vector<std::string> overrides = {};
  // Standard output and error are appended here; begun anew (the old one kept as .1) when it has
  // passed 64 MiB.
  std::filesystem::path log_path;
};

// The child gets SIGKILL when the calling *thread* ends (the kernel ties the wish to the forking
// thread), so call this from the main thread only. It is in a process group of its own, so that
// Ctrl-C reaches us alone, with no signal blocked and /dev/null as standard input.
absl::StatusOr<pid_t> SpawnChild(const ChildSpec& spec);

// "exit code 78" or "signal 9" of a status from waitpid.
std::string DescribeExit(int wait_status);

}  // namespace lathe::cli
