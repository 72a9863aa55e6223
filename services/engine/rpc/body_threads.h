// Where requests with large bodies are taken in.
#pragma once

#include <functional>
#include <vector>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// A large body takes milliseconds to check and waits for the disk. gRPC has few threads for
// everybody; these are for that. Thread-safe.
class BodyThreads {
 public:
  BodyThreads();
  // Runs what was taken, then ends the threads.
  ~BodyThreads();

  // False at once when too many wait.
  bool TryRun(std::function<void()> work) { return queue_.TryPush(std::move(work)); }

 private:
  void Run();

  BoundedQueue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace lathe::engine
