// Who of several engines on one store leads: waiting for it, keeping it, giving it back.
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
#include "libs/common/concurrency/periodic_task.h"
#include "services/engine/leadership/lease_hold.h"
#include "services/engine/leadership/lease_watch.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Of one process. First a standby: TryLead is called again and again, by one thread. Then the
// leader, with a thread that renews the lease. A lease that could not be renewed in time, because
// the store is away, ends what MaySpeak allows until it is renewed: as long as nobody else has
// taken it, nothing has changed meanwhile.
class Leadership {
 public:
  struct Options {
    // A leader that is silent for so long may be replaced; so much of every failure is waiting.
    absl::Duration lease = absl::Seconds(6);
    // Between two renewals. Shorter: more of them, and more tries before the lease ends.
    absl::Duration renewal = absl::Milliseconds(1500);
    // Where this engine serves, for those who ask another one.
    std::string address;
    // As ThisProcess; another one for tests.
    std::string process;
  };
  using Now = std::function<absl::Time()>;

  static constexpr absl::Duration kMinLease = absl::Seconds(2);
  static constexpr absl::Duration kMaxLease = absl::Seconds(60);
  static constexpr absl::Duration kMinRenewal = absl::Milliseconds(100);
  // Renewals in a lease, at least.
  static constexpr int kMinRenewals = 3;
  // InvalidArgument naming the setting, its value and its bound.
  static absl::Status Check(const Options& options);

  // `store` must outlive this. `on_lost`: somebody else leads; should end the process. Called once,
  // on the renewing thread. `now`: SteadyNowWithSleep, but in tests.
  Leadership(Options options, Store& store, std::function<void(const absl::Status&)> on_lost,
             Now now);

  // Between two calls of TryLead: what a standby sees late, it waits longer for.
  absl::Duration LookPeriod() const { return options_.renewal / 6; }
  // Takes the lease if it is free. True: this process leads.
  bool TryLead();
  // The leader, for people: "process 12 on HOST at ADDRESS"; "nobody yet".
  std::string leader() const;

  // As the leader only.
  int64_t term() const { return term_; }
  void StartRenewing();
  // One renewal, as the thread does it.
  void Renew();
  // Ends the renewing, and lets a standby lead at once.
  void Resign();

  // Whether what this process says and orders is still that of the leader. Any thread.
  bool MaySpeak() const { return hold_.IsHeld(now_()); }

 private:
  void SetLeader(std::string leader);

  const Options options_;
  Store& store_;
  const std::function<void(const absl::Status&)> on_lost_;
  const Now now_;
  LeaseWatch watch_;
  LeaseHold hold_;
  int64_t term_ = 0;
  bool is_late_ = false;  // renewing thread only
  mutable absl::Mutex mu_;
  std::string leader_ ABSL_GUARDED_BY(mu_) = "nobody yet";
  std::unique_ptr<PeriodicTask> renewing_;
};

}  // namespace lathe::engine
