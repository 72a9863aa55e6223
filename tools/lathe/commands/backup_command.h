// `lathe backup` and `lathe restore`: run lathe-engine, which has all the SQL.
#pragma once

#include "absl/status/status.h"

namespace lathe::cli {

absl::Status BackupCommand(int argc, const char* const* argv);
absl::Status RestoreCommand(int argc, const char* const* argv);

}  // namespace lathe::cli
