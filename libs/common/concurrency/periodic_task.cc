#include "libs/common/concurrency/periodic_task.h"

#include <chrono>
#include <utility>

#include "absl/time/time.h"

namespace lathe {

PeriodicTask::PeriodicTask(std::string name, absl::Duration period, std::function<void()> task)
    : thread_(std::move(name), [this, period, task = std::move(task)] {
        while (!IsStoppedWithin(period)) task();
      }) {}

PeriodicTask::~PeriodicTask() {
  const std::lock_guard lock(mu_);
  is_stopped_ = true;
  stop_.notify_one();
}

bool PeriodicTask::IsStoppedWithin(absl::Duration period) {
  std::unique_lock lock(mu_);
  return stop_.wait_for(lock, absl::ToChronoNanoseconds(period), [this] { return is_stopped_; });
}

}  // namespace lathe
