// Threads with a name that `top -H` shows, also for a task that runs periodically.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace lathe {

// Runs `body` on a thread and joins it in the destructor. The owner first makes `body` return: it
// closes the queue or sets the flag that `body` waits for. Declare it as the last member of its
// owner. The thread blocks all signals except that of thread_stacks.h, so the main thread receives
// them.
class NamedThread {
 public:
  NamedThread() = default;
  // The kernel keeps only the first 15 characters of `name`.
  NamedThread(std::string name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&&) = delete;
  ~NamedThread();

  // Waits until `body` returns. May be called twice.
  void Join();

 private:
  std::thread thread_;
};

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
