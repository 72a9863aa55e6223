// A bounded queue that passes work between threads.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lathe {

// FIFO queue of at most `max_items` items, with any number of producers and consumers. After Close,
// no item enters, and consumers can still take the remaining items.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t max_items) : max_items_(max_items) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Returns false at once, and drops `item`, when the queue is full or closed.
  bool TryPush(T item) {
    absl::MutexLock lock(&mu_);
    if (closed_ || items_.size() >= max_items_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Waits for room. Returns false when the queue is closed, also while it waits.
  bool Push(T item) {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &BoundedQueue::CanPushLocked));
    if (closed_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Waits for an item. Returns nullopt once the queue is closed and empty.
  std::optional<T> Pop() { return PopFor(absl::InfiniteDuration()); }

  // Like Pop, and also returns nullopt when no item arrives within `timeout`.
  std::optional<T> PopFor(absl::Duration timeout) {
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(this, &BoundedQueue::CanPopLocked), timeout);
    return TakeLocked();
  }

  // Like Pop, but never waits.
  std::optional<T> TryPop() {
    absl::MutexLock lock(&mu_);
    return TakeLocked();
  }

  // Closes the queue and wakes all waiting threads. May be called twice.
  void Close() {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mu_);
    return closed_;
  }
  std::size_t size() const {
    absl::MutexLock lock(&mu_);
    return items_.size();
  }

 private:
  bool CanPushLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || items_.size() < max_items_;
  }
  bool CanPopLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !items_.empty();
  }

  std::optional<T> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const std::size_t max_items_;
  mutable absl::Mutex mu_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe
