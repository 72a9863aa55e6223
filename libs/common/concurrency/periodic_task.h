// A task that runs periodically on its own thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe {

// Calls `task` every `period`, first after one period. Calls never overlap: a long call delays the
// next. The destructor ends the wait at once, but waits for a call that is running.
class PeriodicTask {
 public:
  PeriodicTask(std::string name, absl::Duration period, std::function<void()> task);
  ~PeriodicTask();

 private:
  bool IsStoppedWithin(absl::Duration period);

  // Uses the standard library, because absl's waits use the wall clock, which may be set back.
  std::mutex mu_;
  std::condition_variable stop_;
  bool is_stopped_ = false;
  NamedThread thread_;
};

}  // namespace lathe
