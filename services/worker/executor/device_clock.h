// Time as the device spends it. The host queues work on a GPU and goes on, so that the host's clock
// only says when work was queued.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "libs/common/time/clock.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Marks points between pieces of the device's work. For one thread.
class DeviceClock {
 public:
  using Mark = int64_t;
  // Number of marks that can be asked about. A new one replaces the oldest.
  static constexpr int64_t kMostMarks = 16;

  virtual ~DeviceClock() = default;

  // Marks the point behind all work that is queued now.
  virtual Mark SetMark() = 0;
  // Returns true if the device has done the work before `mark`.
  virtual bool HasPassed(Mark mark) = 0;
  // Blocks until the device has done the work before `mark`.
  virtual void Wait(Mark mark) = 0;
  // Returns the device's time from one passed mark to another.
  virtual absl::Duration Between(Mark begin, Mark end) = 0;
};

// For a CPU, which has done the work when the host goes on.
class HostDeviceClock : public DeviceClock {
 public:
  explicit HostDeviceClock(std::function<absl::Time()> now = SteadyNow) : now_(std::move(now)) {}

  Mark SetMark() override {
    times_[next_ % kMostMarks] = now_();
    return next_++;
  }
  bool HasPassed(Mark) override { return true; }
  void Wait(Mark) override {}
  absl::Duration Between(Mark begin, Mark end) override {
    return times_[end % kMostMarks] - times_[begin % kMostMarks];
  }

 private:
  const std::function<absl::Time()> now_;
  std::array<absl::Time, kMostMarks> times_;
  Mark next_ = 0;
};

// Returns the clock of `device`. On a GPU, marks are events on the thread's current stream.
std::unique_ptr<DeviceClock> MakeDeviceClock(at::Device device);

}  // namespace lathe::worker
