// Runs another program and collects what it prints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lathe::cli {

struct ProgramRun {
  int exit_code = 0;   // 128 + signal if a signal ended it
  std::string output;  // standard output and standard error, as they came
};

// Runs `arguments`, the first of which is the program's path, without input. Its environment is the
// caller's and `additions`, NAME=VALUE, which win. Returns DeadlineExceeded if it has not ended
// after `limit`; it is then killed. Returns Unavailable if it cannot be started.
absl::StatusOr<ProgramRun> RunProgram(const std::vector<std::string>& arguments,
                                      absl::Duration limit,
                                      const std::vector<std::string>& additions = {});

}  // namespace lathe::cli
