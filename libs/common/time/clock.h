// The time of day as an object, so that tests can control it, and monotonic time for waits and
// deadlines within this process.
#pragma once

#include <time.h>
#include <algorithm>
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lathe {

// Follows the wall clock. After a jump of a second or more, it approaches the new time at a tenth
// of the pace of time: an hour takes ten hours. A jump would otherwise end all waits for a time at
// once, or delay them. Not thread-safe.
class SlewedClock {
 public:
  explicit SlewedClock(absl::Time wall) : now_(wall) {}

  // Returns the time to use. `wall` is the wall clock's time. `elapsed` is the time since the last
  // call, by a monotonic clock.
  absl::Time Follow(absl::Time wall, absl::Duration elapsed) {
    now_ += elapsed;
    const absl::Duration off = wall - now_;
    const absl::Duration most = elapsed / kSlowness;
    const bool has_jumped = absl::AbsDuration(off) >= kJump;
    now_ = has_jumped ? now_ + std::clamp(off, -most, most) : wall;
    return now_;
  }

 private:
  static constexpr absl::Duration kJump = absl::Seconds(1);
  static constexpr int kSlowness = 10;

  absl::Time now_;
};

// Source of the current time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

// The machine's clock, without its jumps: see SlewedClock.
class RealClock : public Clock {
 public:
  absl::Time Now() override {
    absl::MutexLock lock(&mu_);
    const auto steady = std::chrono::steady_clock::now();
    const absl::Duration elapsed = absl::FromChrono(steady - steady_);
    steady_ = steady;
    return follower_.Follow(absl::Now(), elapsed);
  }

 private:
  absl::Mutex mu_;
  std::chrono::steady_clock::time_point steady_ ABSL_GUARDED_BY(mu_) =
      std::chrono::steady_clock::now();
  SlewedClock follower_ ABSL_GUARDED_BY(mu_){absl::Now()};
};

// A clock that moves only when Advance is called.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'000'000'000)) : now_(start) {}

  absl::Time Now() override {
    absl::MutexLock lock(&mu_);
    return now_;
  }
  void Advance(absl::Duration step) {
    absl::MutexLock lock(&mu_);
    now_ += step;
  }

 private:
  absl::Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

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
