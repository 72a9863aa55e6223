// When a lease ends: the holder's view and the standby's.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Reads the lease repeatedly and measures by its own clock how long it has not been renewed.
// Belongs to one thread.
class LeaseWatch {
 public:
  // Returns true if the process is certain to have ended.
  using HasEnded = std::function<bool(const std::string& process)>;

  // `process` is the name of the watching process.
  LeaseWatch(std::string process, HasEnded has_ended)
      : process_(std::move(process)), has_ended_(std::move(has_ended)) {}

  // Returns true if no process holds the lease any more. `lease` was read before `now`.
  bool IsFree(const LeaseRow& lease, absl::Time now) {
    if (lease.duration == absl::ZeroDuration()) return true;
    // The process itself may hold the lease, if the response to its TakeLease was lost.
    if (lease.process == process_ || has_ended_(lease.process)) return true;
    if (!seen_ || seen_->term != lease.term || seen_->num_renewals != lease.num_renewals) {
      seen_ = Seen{.term = lease.term, .num_renewals = lease.num_renewals, .since = now};
      return false;
    }
    return now - seen_->since >= lease.duration * kMargin;
  }
  // Restarts the measurement, because the lease could not be read and so perhaps not be renewed.
  void Forget() { seen_.reset(); }

 private:
  // Margin for clock rates, which differ by far less between two machines.
  static constexpr double kMargin = 1.1;

  struct Seen {
    int64_t term = 0;
    int64_t num_renewals = 0;
    absl::Time since;
  };

  const std::string process_;
  const HasEnded has_ended_;
  std::optional<Seen> seen_;
};

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
