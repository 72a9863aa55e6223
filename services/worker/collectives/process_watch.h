// Notification of the end of processes on this machine, without polling. Does not include torch.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "libs/common/concurrency/named_thread.h"

namespace lathe::worker {

// Watches processes with one thread, which sleeps until one of them ends. One thread owns it.
class ProcessWatch {
 public:
  // `on_end` is called once for each process, on the watch's thread, with the number given to Add.
  // By then the process is gone and the kernel has closed its files.
  explicit ProcessWatch(std::function<void(int number)> on_end);
  // After it returns, no call of `on_end` runs.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;

  // Must be called before Start. Returns false if there is no such process, or if the kernel cannot
  // report its end. That is so before Linux 5.3, and in a sandbox that forbids it.
  bool Add(int number, pid_t pid);
  // Starts the thread, unless no process was added.
  void Start();

 private:
  struct Process {
    int number = 0;
    int fd = -1;  // becomes readable when the process ends
  };

  void Run();

  const std::function<void(int)> on_end_;
  std::vector<Process> processes_;  // used by the thread only, once it runs
  const int stop_fd_;
  std::optional<NamedThread> thread_;
};

}  // namespace lathe::worker
