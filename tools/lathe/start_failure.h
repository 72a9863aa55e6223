// Why a child that ended before it was ready is not started again.
#pragma once

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "tools/lathe/supervisor.h"

namespace lathe::cli {

// The word (see exit_code.h) of an exit code that says that another try would end the same way:
// configuration, permission or cannot_create. Empty: none.
std::string_view WordOfExit(int wait_status);

// How the child ended, and with which words at the end of its log, `log_path`. Its word is that of
// the exit code, else child_failed.
absl::Status StartFailure(const ChildExit& exit, const Supervisor& supervisor,
                          const std::filesystem::path& log_path);

}  // namespace lathe::cli
