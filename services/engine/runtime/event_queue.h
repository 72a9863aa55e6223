// The queue of events for the core's thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/events.h"

namespace lathe::engine {

// FIFO queue. Events from clients' calls are bounded. The engine's own events (commits, worker
// messages, ticks) always enter: their sources bound them, and they must not be lost. Thread-safe,
// one consumer.
class EventQueue {
 public:
  explicit EventQueue(size_t max_calls) : max_calls_(max_calls) {}

  // Returns false at once when `max_calls` events wait or the queue is closed.
  bool TryPushCall(EventBody body);
  // Drops the event when the queue is closed.
  void Push(EventBody body);
  // Waits, then moves all events into `out`, which is emptied first. Returns false once the queue
  // is closed and empty.
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
