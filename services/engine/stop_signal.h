// SIGTERM and SIGINT as an event.
#pragma once

#include <signal.h>

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Waits for the signals on a thread of its own, so that one is heard whatever the main thread does.
// Thread-safe.
class StopSignal {
 public:
  // `signals` are blocked in every thread of the process.
  explicit StopSignal(const sigset_t& signals);
  ~StopSignal();

  // What to do at once when a signal comes, on its thread; now, if one has come. Empty: nothing.
  void React(std::function<void()> reaction);

  bool has_come() const { return WaitFor(absl::ZeroDuration()); }
  // False when none came within `timeout`.
  bool WaitFor(absl::Duration timeout) const;

 private:
  void Listen();

  const sigset_t signals_;
  mutable absl::Mutex mu_;
  bool has_come_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> reaction_ ABSL_GUARDED_BY(mu_);
  NamedThread thread_;
};

}  // namespace lathe::engine
