// When it makes sense to try again, as part of an absl::Status.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lathe {

// `status` with how long to wait. An OK status, and a wait of zero, are returned as they are.
absl::Status WithRetryAfter(absl::Status status, absl::Duration wait);

// Zero when nothing was said.
absl::Duration RetryAfter(const absl::Status& status);

}  // namespace lathe
