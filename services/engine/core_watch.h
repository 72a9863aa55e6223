// Ends an engine whose core thread hangs, so that its supervisor starts a new one.
#pragma once

#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace lathe::engine {

// Counts calls of Look instead of time, so that a process that was suspended does not count as
// hung. One thread calls Look() every Period().
class CoreWatch {
 public:
  // Lower bound of the limit. The core gets a tick every second, so a shorter idle time is normal.
  static constexpr absl::Duration kMinLimit = absl::Seconds(3);

  // `idle_time` returns the time since the core last did something. Look() calls `on_stuck` once
  // that reaches `limit`.
  CoreWatch(absl::Duration limit, std::function<absl::Duration()> idle_time,
            std::function<void()> on_stuck)
      : limit_(limit), idle_time_(std::move(idle_time)), on_stuck_(std::move(on_stuck)) {}

  absl::Duration Period() const { return limit_ / kLooksPerLimit; }
  void Look() {
    num_idle_looks_ = idle_time_() < Period() ? 0 : num_idle_looks_ + 1;
    if (num_idle_looks_ >= kLooksPerLimit && idle_time_() >= limit_) on_stuck_();
  }

 private:
  static constexpr int kLooksPerLimit = 10;

  const absl::Duration limit_;
  const std::function<absl::Duration()> idle_time_;
  const std::function<void()> on_stuck_;
  int num_idle_looks_ = 0;
};

}  // namespace lathe::engine
