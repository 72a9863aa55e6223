// The way into the core's thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// First in, first out. Calls of clients are bounded; what the engine itself has under way (commits,
// worker messages, ticks) always enters, because it is bounded where it comes from and must not be
// lost. Thread-safe, one consumer.
class EventQueue {
 public:
  explicit EventQueue(size_t max_calls) : max_calls_(max_calls) {}

  // False at once when `max_calls` events wait or the queue is closed.
  bool TryPushCall(EventBody body);
  // Dropped when the queue is closed.
  void Push(EventBody body);
  // Waits, then moves everything that arrived into `out` (emptied first). False once closed and
  // empty.
  bool PopAll(std::vector<EventBody>& out);
  size_t size() const;
  void Close();

 private:
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !events_.empty();
  }

  const size_t max_calls_;
  mutable absl::Mutex mu_;
  std::vector<EventBody> events_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine
