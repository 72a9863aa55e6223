// How long this process may act as the leader.
#pragma once

#include <atomic>

#include "absl/time/time.h"

namespace lathe::engine {

// Thread-safe. Times are those of SteadyNowWithSleep. Whoever has the lease counts from before a
// renewal was asked for, whoever waits for its end from after it was seen: the one is over before
// the other begins, whatever their clocks show.
class LeaseHold {
 public:
  explicit LeaseHold(absl::Duration duration) : duration_(duration) {}

  // It was taken or renewed by a call that began at `asked_at`.
  void Renew(absl::Time asked_at) { until_ = absl::ToUnixNanos(asked_at + duration_); }
  // It is somebody else's.
  void End() { until_ = 0; }

  bool IsHeld(absl::Time now) const { return absl::ToUnixNanos(now) < until_; }

 private:
  const absl::Duration duration_;
  std::atomic<int64_t> until_ = 0;
};

}  // namespace lathe::engine
