// `lathe doctor`.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

// `argv[0]` is the verb. Errors, whose exit codes are 1 and 2: doctor_warnings, doctor_errors.
absl::Status DoctorCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
