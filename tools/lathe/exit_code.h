// What the shell learns of an error.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// Of the status's word (ErrorCode): 69 port_taken, not_running, too_little_memory, child_failed;
// 73 data_dir_in_use, cannot_create; 77 permission; 78 model_missing, not_a_model, bad_model_name,
// configuration; 2 usage. Another word goes by the status code: 69 Unavailable and
// DeadlineExceeded, 77 PermissionDenied, 2 what the caller can mend, 70 the rest.
int ExitCodeOf(const absl::Status& status);

// Prints `lathe: WORD: MESSAGE` on stderr and returns the exit code; 0 and silent for OK. A
// Cancelled status is a help text: printed on stdout, 0.
int Report(const absl::Status& status);

}  // namespace lathe::cli
