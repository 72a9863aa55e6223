// Leader election among the engines on one store: acquiring, renewing and releasing the lease.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/leadership/lease_watch.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// The leadership state of one process. It starts as a standby, on which one thread calls TryLead
// repeatedly. As the leader it renews the lease on its own thread. If the store is unavailable for
// too long, MaySpeak becomes false until a renewal succeeds. That is safe: no other engine took the
// lease, so nothing has changed meanwhile.
class Leadership {
 public:
  struct Options {
    // Validity of the lease. A standby may take over after this time, so a failover waits at least
    // as long.
    absl::Duration lease = absl::Seconds(6);
    // Time between two renewals. A shorter one gives more attempts before the lease expires.
    absl::Duration renewal = absl::Milliseconds(1500);
    // Address at which this engine serves, shown to clients of the other engines.
    std::string address;
    // Name of the process, from ThisProcess; tests use another one.
    std::string process;
  };
  using Now = std::function<absl::Time()>;

  static constexpr absl::Duration kMinLease = absl::Seconds(2);
  static constexpr absl::Duration kMaxLease = absl::Seconds(60);
  static constexpr absl::Duration kMinRenewal = absl::Milliseconds(100);
  // Minimum number of renewals per lease.
  static constexpr int kMinRenewals = 3;
  // Returns InvalidArgument that names the setting, its value and its bound.
  static absl::Status Check(const Options& options);

  // `store` must outlive this. `on_lost` is called once, on the renewing thread, if another engine
  // leads; it should end the process. `now` is SteadyNowWithSleep outside tests.
  Leadership(Options options, Store& store, std::function<void(const absl::Status&)> on_lost,
             Now now);

  // Time between two calls of TryLead. A standby that notices a renewal late waits that much
  // longer.
  absl::Duration LookPeriod() const { return options_.renewal / 6; }
  // Takes the lease if it is free. Returns true if this process leads now.
  bool TryLead();
  // Returns Unavailable if the lease could not be read for as long as a lease lasts. Any thread.
  absl::Status CheckStandby() const;
  // Describes the leader for people: "process 12 on HOST at ADDRESS", or "none yet".
  std::string leader() const;

  // The functions below are for the leader only.
  int64_t term() const { return term_; }
  void StartRenewing();
  // Performs one renewal, as the thread does.
  void Renew();
  // Stops renewing and releases the lease, so that a standby can lead at once.
  void Resign();

  // Returns true if the responses and commands of this process still are those of the leader. Any
  // thread.
  bool MaySpeak() const { return hold_.IsHeld(now_()); }

 private:
  void SetLeader(std::string leader);
  // Notes that the lease was read now.
  void NoteLook();

  const Options options_;
  Store& store_;
  const std::function<void(const absl::Status&)> on_lost_;
  const Now now_;
  LeaseWatch watch_;
  LeaseHold hold_;
  int64_t term_ = 0;
  bool is_late_ = false;  // renewing thread only
  mutable absl::Mutex mu_;
  std::string leader_ ABSL_GUARDED_BY(mu_) = "none yet";
  // Time at which the lease was last read; before the first time: that of the construction.
  absl::Time read_at_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<PeriodicTask> renewing_;
};

}  // namespace lathe::engine
