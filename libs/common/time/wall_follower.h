// Wall time without the jumps of the machine's clock.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lathe {

// Follows the wall clock. After a jump of a second or more, it approaches the new time at a tenth
// of the pace of time: an hour takes ten hours. A jump would otherwise end all waits for a time at
// once, or delay them. Not thread-safe.
class WallFollower {
 public:
  explicit WallFollower(absl::Time wall) : now_(wall) {}

  // Returns the time to use. `wall` is the wall clock's time. `elapsed` is the time since the last
  // call, by a monotonic clock.
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
