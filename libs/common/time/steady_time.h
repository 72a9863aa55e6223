// Monotonic time for waits and deadlines within this process.
#pragma once

#include <time.h>

#include <chrono>

#include "absl/time/time.h"

namespace lathe {

// Monotonic time with an arbitrary origin. It stops while the machine sleeps.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Like SteadyNow, but continues while the machine sleeps. Meant for time that other machines
// measure too.
inline absl::Time SteadyNowWithSleep() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace lathe
