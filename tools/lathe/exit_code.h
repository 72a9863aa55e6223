// Exit codes and error output of the command line.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace lathe::cli {

// Returns the exit code for the status's error word (ErrorCode):
//   1  unhealthy, selftest_failed, doctor_warnings
//   2  usage, doctor_errors
//   69 port_taken, not_running, too_little_memory, child_failed
//   73 data_dir_in_use, cannot_create
//   77 permission
//   78 model_missing, not_a_model, checkpoint_missing, bad_model_name, configuration
// Any other word is mapped by status code: 69 for Unavailable, DeadlineExceeded and
// ResourceExhausted, 77 for PermissionDenied, 2 for other user errors (IsUserError), 70 for the
// rest. OK and Cancelled give 0, and the status of EndWith gives its exit code.
int ExitCodeOf(const absl::Status& status);

// Returns a status of a command that did what it should and ends with `exit_code`. Report prints
// nothing for it.
absl::Status EndWith(int exit_code);

// Returns InvalidArgument with the word usage.
absl::Status UsageError(const std::string& message);

// Prints `lathe: WORD: MESSAGE` on stderr and returns the exit code. Prints nothing for OK. A
// Cancelled status holds a help text, which is printed on stdout.
int Report(const absl::Status& status);

}  // namespace lathe::cli
