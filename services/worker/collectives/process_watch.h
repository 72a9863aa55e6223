// Hears of the end of processes of this machine without asking again and again. Free of torch.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "libs/common/concurrency/named_thread.h"

namespace lathe::worker {

// Owned by whoever waits for what these processes do. Its thread sleeps until one of them ends.
class ProcessWatch {
 public:
  // `on_end` is called once for each process, on the watch's thread, with the number that it was
  // added under. A process is gone by then: the kernel has closed its files.
  explicit ProcessWatch(std::function<void(int number)> on_end);
  // No call runs any more when it returns.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;

  // Before Start. False: there is no such process, or the kernel does not tell of its end (before
  // Linux 5.3, or in a sandbox that forbids it).
  bool Add(int number, pid_t pid);
  // Without a process it starts no thread.
  void Start();

 private:
  struct Process {
    int number = 0;
    int fd = -1;  // readable when the process has ended
  };

  void Run();

  const std::function<void(int)> on_end_;
  std::vector<Process> processes_;  // the thread's, once that runs
  const int stop_fd_;
  std::optional<NamedThread> thread_;
};

}  // namespace lathe::worker
