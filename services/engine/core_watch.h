// Ends an engine whose deciding thread hangs, so that its supervisor starts another.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace lathe::engine {

// Counts looks, not time: a process that was stopped as a whole and goes on has not hung. Look() is
// called again and again, Period() apart, by one thread.
class CoreWatch {
 public:
  // It hears a tick every second, so that less would be no hang.
  static constexpr absl::Duration kMinLimit = absl::Seconds(3);

  // `idle_time`: since the core last did something. `on_stuck` is called by Look() once it has done
  // nothing for `limit`.
  CoreWatch(absl::Duration limit, std::function<absl::Duration()> idle_time,
            std::function<void()> on_stuck);

  absl::Duration Period() const;
  void Look();

 private:
  const absl::Duration limit_;
  const std::function<absl::Duration()> idle_time_;
  const std::function<void()> on_stuck_;
  int num_idle_looks_ = 0;
};

}  // namespace lathe::engine
