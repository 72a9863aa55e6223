// Threads that accept requests with large bodies.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "libs/common/concurrency/bounded_queue.h"
#include "libs/common/concurrency/named_thread.h"

namespace lathe::engine {

// Runs the validation and storing of large bodies, which takes milliseconds and waits for the disk.
// gRPC has too few threads for that. Thread-safe.
class BodyThreads {
 public:
  BodyThreads() : queue_(kMaxWaiting) {
    for (int i = 0; i < kNumThreads; ++i) threads_.emplace_back("engine-bodies", [this] { Run(); });
  }
  // Runs all accepted work, then ends the threads.
  ~BodyThreads() { queue_.Close(); }

  // Returns false at once if too much work is waiting.
  bool TryRun(std::function<void()> work) { return queue_.TryPush(std::move(work)); }

 private:
  // Number of threads, and so of bodies that can wait for the disk at the same time.
  static constexpr int kNumThreads = 4;
  // Bound of the queue. It costs little, because gRPC holds each waiting message anyway.
  static constexpr size_t kMaxWaiting = 1024;

  void Run() {
    while (const std::optional<std::function<void()>> work = queue_.Pop()) (*work)();
  }

  BoundedQueue<std::function<void()>> queue_;
  std::vector<NamedThread> threads_;
};

}  // namespace lathe::engine
