// Bodies of accepted requests, in memory until nobody needs them, and in the store.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/core/events.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

using SharedBytes = std::shared_ptr<const std::string>;

// Thread-safe. A body is held in memory at least until its commit; afterwards the oldest leave
// memory above `max_cached_bytes` and are read from the store when needed.
class Bodies {
 public:
  // `store` must outlive this.
  Bodies(Store& store, int64_t max_cached_bytes)
      : store_(store), max_cached_bytes_(max_cached_bytes) {}

  // Gives the body an id; a large one is durable when this returns (so this may block).
  absl::StatusOr<PayloadRef> Add(std::string bytes, int64_t tokens);

  // Null when it is not in memory.
  SharedBytes InMemory(const std::string& body_id);
  // From memory or the store; the latter may block.
  absl::StatusOr<SharedBytes> Read(const std::string& body_id);

  // The row that names the body is durable.
  void MarkCommitted(const std::string& body_id);
  // Nobody needs it any more. A large one that was never committed is removed from the store.
  void Forget(const std::string& body_id);

 private:
  struct Entry {
    SharedBytes bytes;
    bool committed = false;
    std::list<std::string>::iterator age;  // in committed_order_, when committed
  };

  void EvictLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store& store_;
  const int64_t max_cached_bytes_;
  absl::Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> committed_order_ ABSL_GUARDED_BY(mu_);  // oldest first
  int64_t committed_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::engine
