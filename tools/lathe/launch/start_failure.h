// Describes why a child that ended before it was ready is not restarted.
#pragma once

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "tools/lathe/launch/supervisor.h"

namespace lathe::cli {

// Returns the error word (see exit_code.h) of an exit that a restart would only repeat:
// configuration, permission or cannot_create. Empty: a restart may help.
std::string_view ExitReason(int wait_status);

// Returns an error that says how the child ended and quotes the end of its log, `log_path`. Its
// word is ExitReason, else child_failed.
absl::Status StartFailure(const ChildExit& exit, const Supervisor& supervisor,
                          const std::filesystem::path& log_path);

}  // namespace lathe::cli
