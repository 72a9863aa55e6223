// How long to wait before the next attempt.
#pragma once

#include <algorithm>

#include "absl/random/random.h"
#include "absl/time/time.h"

namespace lathe::engine {

// Doubles from 10 ms to a second, half of it at random: engines that lost one server do not come
// back in step.
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
