// Something done again and again on a thread of its own.
#pragma once

#include <functional>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {

// Calls `task` every `period`, first after one period, never two calls at once; a long call delays
// the next. The destructor ends the wait at once and waits for a call that is running.
class PeriodicTask {
 public:
  PeriodicTask(std::string name, absl::Duration period, std::function<void()> task);
  ~PeriodicTask();

 private:
  absl::Notification stop_;
  NamedThread thread_;
};

}  // namespace lathe
