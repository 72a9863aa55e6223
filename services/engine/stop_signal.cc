#include "services/engine/stop_signal.h"

#include <unistd.h>

#include <utility>

namespace lathe::engine {

StopSignal::StopSignal(const sigset_t& signals)
    : signals_(signals), thread_("engine-signals", [this] { Listen(); }) {}

// Sends SIGTERM to end the thread, which waits for nothing but a signal.
StopSignal::~StopSignal() {
  React(nullptr);
  if (!has_come()) kill(getpid(), SIGTERM);
}

void StopSignal::React(std::function<void()> reaction) {
  absl::MutexLock lock(&mu_);
  reaction_ = std::move(reaction);
  if (has_come_ && reaction_) reaction_();
}

bool StopSignal::WaitFor(absl::Duration timeout) const {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&has_come_), timeout);
}

void StopSignal::Listen() {
  int signal = 0;
  sigwait(&signals_, &signal);
  absl::MutexLock lock(&mu_);
  has_come_ = true;
  if (reaction_) reaction_();
}

}  // namespace lathe::engine
