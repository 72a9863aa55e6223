// Turns off the debugging aids of Abseil's mutexes.
#pragma once

#include "absl/synchronization/mutex.h"

namespace lathe {

// Debian builds Abseil with deadlock detection on: each lock then updates one graph under one
// global lock. That costs 5 % of the engine's time, and gRPC uses the same mutexes. Call this first
// in main. Tests keep the detection on.
inline void DisableMutexChecks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace lathe
