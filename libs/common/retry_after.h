// Stores a retry delay in an absl::Status.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// Adds a retry delay to `status`. Returns an OK status unchanged, and ignores a zero `wait`.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// Returns the delay, or zero when the status has none.
absl::Duration RetryAfter(const absl::Status& status);

}  // namespace lathe
