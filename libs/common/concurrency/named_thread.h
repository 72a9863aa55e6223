// A thread with a name that `top -H` shows.
#pragma once

#include <functional>
#include <string>
#include <thread>

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

}  // namespace lathe
