// Wall time without the jumps that a machine's clock may make.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lathe {

// Follows the wall clock. One that was set forward or back by a second or more is approached at a
// tenth of the pace of time, an hour in ten, instead of at once: else everything that waits for a
// time would end in that moment, or not for an hour. Not thread-safe.
class WallFollower {
 public:
  explicit WallFollower(absl::Time wall) : now_(wall) {}

  // The time to go by. `wall`: what the clock says; `elapsed`: since the last call, by a clock that
  // nobody sets.
  absl::Time Follow(absl::Time wall, absl::Duration elapsed) {
    now_ += elapsed;
    const absl::Duration off = wall - now_;
    const absl::Duration most = elapsed / kSlowness;
    const bool has_jumped = absl::AbsDuration(off) >= kJump;
    now_ = has_jumped ? now_ + std::clamp(off, -most, most) : wall;
    return now_;
  }

 private:
  static constexpr absl::Duration kJump = absl::Seconds(1);
  static constexpr int kSlowness = 10;

  absl::Time now_;
};

}  // namespace lathe
