// Threads that accept requests with large bodies.
#pragma once

#include <functional>
#include <vector>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Runs the validation and storing of large bodies, which takes milliseconds and waits for the disk.
// gRPC has too few threads for that. Thread-safe.
class BodyThreads {
 public:
  BodyThreads();
  // Runs all accepted work, then ends the threads.
  ~BodyThreads();

  // Returns false at once if too much work is waiting.
  bool TryRun(std::function<void()> work) { return queue_.TryPush(std::move(work)); }

 private:
  void Run();

  BoundedQueue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace lathe::engine
