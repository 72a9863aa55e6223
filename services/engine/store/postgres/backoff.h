// Delays between attempts to reach a database.
#pragma once

#include <algorithm>

#include "absl/random/random.h"
#include "absl/time/time.h"

namespace lathe::engine {

// Exponential back-off from 10 ms to one second. Up to half of each delay is random, so that
// engines that lost the same server do not reconnect in step.
class Backoff {
 public:
  absl::Duration Next() {
    const absl::Duration whole = next_;
    next_ = std::min(next_ * 2, absl::Seconds(1));
    return whole * absl::Uniform(random_, 0.5, 1.0);
  }

 private:
  absl::BitGen random_;
  absl::Duration next_ = absl::Milliseconds(10);
};

}  // namespace lathe::engine
