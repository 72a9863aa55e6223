#include "libs/common/concurrency/periodic_task.h"

#include <utility>

namespace lathe {

PeriodicTask::PeriodicTask(std::string name, absl::Duration period, std::function<void()> task)
    : thread_(std::move(name), [this, period, task = std::move(task)] {
        while (!stop_.WaitForNotificationWithTimeout(period)) task();
      }) {}

PeriodicTask::~PeriodicTask() { stop_.Notify(); }

}  // namespace lathe
