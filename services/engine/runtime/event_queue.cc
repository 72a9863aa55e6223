#include "services/engine/runtime/event_queue.h"

#include <utility>

namespace lathe::engine {

bool EventQueue::TryPushCall(EventBody body) {
  absl::MutexLock lock(&mu_);
  if (closed_ || events_.size() >= max_calls_) return false;
  events_.push_back(std::move(body));
  return true;
}

void EventQueue::Push(EventBody body) {
  absl::MutexLock lock(&mu_);
  if (!closed_) events_.push_back(std::move(body));
}

bool EventQueue::PopAll(std::vector<EventBody>& out) {
  out.clear();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &EventQueue::HasWorkLocked));
  std::swap(out, events_);
  return !out.empty();
}

size_t EventQueue::size() const {
  absl::MutexLock lock(&mu_);
  return events_.size();
}

void EventQueue::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

}  // namespace lathe::engine
