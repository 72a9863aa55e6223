// Bodies of accepted requests: in the store, and in memory while they are needed.
#pragma once

#include <atomic>
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

// Thread-safe. A body stays in memory at least until its commit. Afterwards the oldest bodies leave
// memory above `max_cached_bytes` and are read from the store when needed.
class Bodies {
 public:
  // `store` must outlive this object.
  Bodies(Store& store, int64_t max_cached_bytes)
      : store_(store), max_cached_bytes_(max_cached_bytes) {}

  // Stores the body under a new id. A large body is durable when this returns, so this may block.
  absl::StatusOr<PayloadRef> Add(std::string bytes, int64_t tokens);

  // Number of bodies added so far.
  int64_t num_added() const { return num_added_; }

  // Returns null when the body is not in memory.
  SharedBytes InMemory(const std::string& body_id);
  // Reads the body from memory, or else from the store, which may block.
  absl::StatusOr<SharedBytes> Read(const std::string& body_id);

  // Records that the row that names the body is durable.
  void MarkCommitted(const std::string& body_id);
  // Drops a body that is no longer needed. A large one that was never committed is removed from the
  // store too.
  void Forget(const std::string& body_id);

 private:
  struct Entry {
    SharedBytes bytes;
    bool committed = false;
    std::list<std::string>::iterator age;  // position in committed_order_, when committed
  };

  void EvictLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Store& store_;
  const int64_t max_cached_bytes_;
  std::atomic<int64_t> num_added_ = 0;
  absl::Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> committed_order_ ABSL_GUARDED_BY(mu_);  // oldest first
  int64_t committed_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::engine
