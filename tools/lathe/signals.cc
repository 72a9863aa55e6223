#include "tools/lathe/signals.h"

#include <pthread.h>

#include <algorithm>

namespace lathe::cli {

Signals::Signals() {
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, &previous_);
}

Signals::~Signals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

SignalEvent Signals::Wait(absl::Duration timeout) {
  const timespec wait = absl::ToTimespec(std::min(timeout, absl::Hours(24)));
  const int signal = sigtimedwait(&set_, nullptr, &wait);
  if (signal < 0) return SignalEvent::kTimeout;
  return signal == SIGCHLD ? SignalEvent::kChild : SignalEvent::kStop;
}

}  // namespace lathe::cli
