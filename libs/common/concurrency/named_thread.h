// A thread with a name, as `top -H` shows it.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace lathe {

// Runs `body` and joins in its destructor: whoever owns it first makes `body` return (closes its
// queue, sets its flag). Make it the last member of its owner. Signals are left to the main thread,
// but for the one of thread_stacks.h.
class NamedThread {
 public:
  NamedThread() = default;
  // The kernel keeps the first 15 characters of `name`.
  NamedThread(std::string name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&&) = delete;
  ~NamedThread();

  // Waits for the end of `body`; may be called twice.
  void Join();

 private:
  std::thread thread_;
};

}  // namespace lathe
