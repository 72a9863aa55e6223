// The time for which this process may act as the leader.
#pragma once

#include <atomic>

#include "absl/time/time.h"

namespace lathe::engine {

// The leader's view of its lease. Times are those of SteadyNowWithSleep. The leader counts the
// lease from before it requests a renewal; a standby counts from after it sees the renewal. The
// leader's time therefore ends first, whatever the clocks show. Thread-safe.
class LeaseHold {
 public:
  explicit LeaseHold(absl::Duration duration) : duration_(duration) {}

  // Extends the lease after a successful call, which began at `asked_at`, took or renewed it.
  void Renew(absl::Time asked_at) { until_ = absl::ToUnixNanos(asked_at + duration_); }
  // Ends the lease at once, because another process has it.
  void End() { until_ = 0; }

  bool IsHeld(absl::Time now) const { return absl::ToUnixNanos(now) < until_; }

 private:
  const absl::Duration duration_;
  std::atomic<int64_t> until_ = 0;
};

}  // namespace lathe::engine
