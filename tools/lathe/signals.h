// Receives signals as events of a loop instead of in handlers.
#pragma once

#include <signal.h>

#include "absl/time/time.h"

namespace lathe::cli {

enum class SignalEvent { kTimeout, kChild, kStop };

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for this thread and every thread that it starts later.
// Construct it before any other thread exists. The destructor restores the signal mask.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;

  // Returns kStop for SIGINT, SIGTERM and SIGHUP, and kChild for SIGCHLD. Returns kTimeout after
  // `timeout`, which may be infinite, but at the latest after 24 hours.
  SignalEvent Wait(absl::Duration timeout);

 private:
  sigset_t set_;
  sigset_t previous_;
};

}  // namespace lathe::cli
