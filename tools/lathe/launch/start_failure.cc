#include "tools/lathe/launch/start_failure.h"

#include <sys/wait.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"
#include "tools/lathe/launch/supervised_ranks.h"

namespace lathe::cli {

std::string_view ExitReason(int wait_status) {
  if (!WIFEXITED(wait_status)) return "";
  switch (WEXITSTATUS(wait_status)) {
    case kExitUsage:
    case kExitConfiguration:
      return "configuration";
    case kExitPermission:
      return "permission";
    case kExitCannotCreate:
      return "cannot_create";
    default:
      return "";
  }
}

absl::Status StartFailure(const ChildExit& exit, const Supervisor& supervisor,
                          const std::filesystem::path& log_path) {
  const std::string_view reason = ExitReason(exit.wait_status);
  const std::string how =
      LostPeer(exit) ? absl::StrCat("lost another rank ", exit.early_deaths,
                                    " times and none of them ended for a reason of its own")
                     : absl::StrCat("ended with ", DescribeExit(exit.wait_status));
  const std::string tail = supervisor.LogTail(exit.name);
  return WithDetail(
      absl::UnavailableError(absl::StrCat(
          exit.name, " ", how, " before it was ready; ", log_path.string(), " ends with\n  ",
          absl::StrReplaceAll(tail.empty() ? "(nothing)" : tail, {{"\n", "\n  "}}))),
      reason.empty() ? "child_failed" : std::string(reason));
}

}  // namespace lathe::cli
