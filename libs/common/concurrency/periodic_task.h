// Something done again and again on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

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
  bool IsStoppedWithin(absl::Duration period);

  // Of the standard library: absl's waits would go by the wall clock, which may be set back.
  std::mutex mu_;
  std::condition_variable stop_;
  bool is_stopped_ = false;
  NamedThread thread_;
};

}  // namespace lathe
