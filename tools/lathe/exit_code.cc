#include "tools/lathe/exit_code.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "libs/common/config/option_set.h"
#include "libs/common/errors.h"

namespace lathe::cli {
namespace {

// Exit codes of a report.
constexpr int kExitWarnings = 1;
constexpr int kExitErrors = 2;
// Exit code of a check whose answer is no, as Docker's HEALTHCHECK wants it.
constexpr int kExitCheckFailed = 1;

// Payload of EndWith: the exit code in digits.
constexpr char kExitCodeUrl[] = "lathe/exit_code";

struct NamedExit {
  std::string_view word;
  int exit_code;
};

constexpr NamedExit kNamedExits[] = {
    {"unhealthy", kExitCheckFailed},
    {"selftest_failed", kExitCheckFailed},
    {"doctor_warnings", kExitWarnings},
    {"doctor_errors", kExitErrors},
    {"usage", kExitUsage},
    {"port_taken", kExitUnavailable},
    {"not_running", kExitUnavailable},
    {"too_little_memory", kExitUnavailable},
    {"child_failed", kExitUnavailable},
    {"data_dir_in_use", kExitCannotCreate},
    {"cannot_create", kExitCannotCreate},
    {"permission", kExitPermission},
    {"model_missing", kExitConfiguration},
    {"not_a_model", kExitConfiguration},
    {"checkpoint_missing", kExitConfiguration},
    {"bad_model_name", kExitConfiguration},
    {"configuration", kExitConfiguration},
};

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  int given = 0;
  const auto payload = status.GetPayload(kExitCodeUrl);
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &given)) return given;
  if (status.ok() || absl::IsCancelled(status)) return 0;
  const std::string word = ErrorCode(status);
  const auto* named = std::find_if(std::begin(kNamedExits), std::end(kNamedExits),
                                   [&](const NamedExit& exit) { return exit.word == word; });
  if (named != std::end(kNamedExits)) return named->exit_code;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsResourceExhausted(status)) {
    return kExitUnavailable;
  }
  if (absl::IsPermissionDenied(status)) return kExitPermission;
  return IsUserError(status) ? kExitUsage : kExitSoftware;
}

absl::Status EndWith(int exit_code) {
  absl::Status status = absl::CancelledError("");
  status.SetPayload(kExitCodeUrl, absl::Cord(absl::StrCat(exit_code)));
  return status;
}

absl::Status UsageError(const std::string& message) {
  return WithDetail(absl::InvalidArgumentError(message), "usage");
}

int Report(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsCancelled(status)) {
    std::fputs(message.c_str(), stdout);
  } else if (!status.ok()) {
    std::fprintf(stderr, "lathe: %s: %s\n", ErrorCode(status).c_str(), message.c_str());
  }
  return ExitCodeOf(status);
}

}  // namespace lathe::cli
