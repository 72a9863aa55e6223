// The time of day as an object, so that tests can control it.
#pragma once

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "libs/common/time/wall_follower.h"

namespace lathe {

// Source of the current time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

// The machine's clock, without its jumps: see WallFollower.
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
  WallFollower follower_ ABSL_GUARDED_BY(mu_){absl::Now()};
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

}  // namespace lathe
