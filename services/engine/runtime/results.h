// Encoded results: held until their commit, then kept for a while for those who wait.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/bodies.h"

namespace lathe::engine {

// Thread-safe. Holds are bounded by what workers run; finished results by `max_recent_bytes`, least
// recently used first (the store has them all).
class Results {
 public:
  explicit Results(int64_t max_recent_bytes) : max_recent_bytes_(max_recent_bytes) {}

  // A fresh id for a result that no commit names yet.
  std::string Hold(std::string bytes);
  // As Hold, under an id the caller chose.
  void HoldAs(const std::string& result_id, std::string bytes);
  // Null when there is no such hold.
  SharedBytes Held(const std::string& result_id);
  void Forget(const std::string& result_id);

  // The commit is durable: the hold becomes the result of `request_id`.
  void Finish(const std::string& result_id, const std::string& request_id);
  // Null when it is not in memory.
  SharedBytes Recent(const std::string& request_id);
  // Nobody will ask for it again, most likely: it makes room.
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
