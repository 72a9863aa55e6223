#include "libs/common/retry_after.h"

#include <string>

#include "absl/strings/cord.h"

namespace lathe {
namespace {

constexpr char kRetryAfterUrl[] = "lathe/retry-after";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration wait) {
  if (wait > absl::ZeroDuration()) {
    status.SetPayload(kRetryAfterUrl, absl::Cord(absl::FormatDuration(wait)));
  }
  return status;
}

absl::Duration RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterUrl);
  absl::Duration wait;
  if (!payload || !absl::ParseDuration(std::string(*payload), &wait)) return absl::ZeroDuration();
  return wait;
}

}  // namespace lathe
