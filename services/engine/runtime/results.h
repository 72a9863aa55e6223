// Encoded results: held until their commit, then cached for the callers that wait.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/bodies.h"

namespace lathe::engine {

// Thread-safe. The work of the workers bounds the held results. `max_recent_bytes` bounds the
// finished ones: the least recently used leave memory first, and the store has them all.
class Results {
 public:
  // An entry takes this beside its bytes, for two copies of its id and their nodes.
  static constexpr int64_t kEntryBytes = 384;

  explicit Results(int64_t max_recent_bytes) : max_recent_bytes_(max_recent_bytes) {}

  // Holds a result that no commit names yet. Returns its new id.
  std::string Hold(std::string bytes);
  // Like Hold, under an id that the caller chose.
  void HoldAs(const std::string& result_id, std::string bytes);
  // Returns null when there is no such held result.
  SharedBytes Held(const std::string& result_id);
  void Forget(const std::string& result_id);

  // Called when the commit is durable: turns the held result into the result of `request_id`.
  void Finish(const std::string& result_id, const std::string& request_id);
  // Returns null when the result is not in memory.
  SharedBytes Recent(const std::string& request_id);
  // Frees the memory of a result that will probably not be requested again.
  void Drop(const std::string& request_id);

 private:
  struct Entry {
    SharedBytes bytes;
    std::list<std::string>::iterator age;
  };

  void DropLocked(const std::string& request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_recent_bytes_;
  absl::Mutex mu_;
  uint64_t next_hold_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<std::string, SharedBytes> held_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Entry> recent_ ABSL_GUARDED_BY(mu_);
  std::list<std::string> order_ ABSL_GUARDED_BY(mu_);  // least recently used first
  int64_t recent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lathe::engine
