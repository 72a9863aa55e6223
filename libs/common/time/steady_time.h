// Time that nobody sets: for waits and deadlines within this process.
#pragma once

#include <time.h>

#include <chrono>

#include "absl/time/time.h"

namespace lathe {

// Its beginning means nothing, and it stands still while the machine sleeps.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// As SteadyNow, and goes on while the machine sleeps: for what others wait for meanwhile.
inline absl::Time SteadyNowWithSleep() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace lathe
