// Signals as events of a loop, not as interruptions.
#pragma once

#include <signal.h>

#include "absl/time/time.h"

namespace lathe::cli {

enum class SignalEvent { kTimeout, kChild, kStop };

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for this thread and every one it starts later, so make
// it before any other. The destructor lets them through again.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;

  // The next signal: kStop for the first three, kChild for SIGCHLD; kTimeout after `timeout`, which
  // may be infinite.
  SignalEvent Wait(absl::Duration timeout);

 private:
  sigset_t set_;
  sigset_t previous_;
};

}  // namespace lathe::cli
