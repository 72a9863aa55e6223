// SIGTERM and SIGINT as an event.
#pragma once

#include <signal.h>

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Waits for the signals on its own thread, so a signal is noticed even while the main thread is
// busy. Thread-safe.
class StopSignal {
 public:
  // All threads of the process must block `signals`.
  explicit StopSignal(const sigset_t& signals);
  ~StopSignal();

  // Sets the reaction to a signal, which runs on the signal thread. If a signal has come already,
  // the reaction runs now, on the caller's thread. Empty: no reaction.
  void React(std::function<void()> reaction);

  bool has_come() const { return WaitFor(absl::ZeroDuration()); }
  // Returns false if no signal came within `timeout`.
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
