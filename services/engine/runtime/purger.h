// The engine-purge thread, which makes missing indexes and deletes what retention no longer keeps.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Runs purges one after the other, in pieces. After the first purge it makes the indexes that a
// migration left to the leader. After each piece it rests for three times as long as the piece
// took, so that commits get most of the store's time. A purge that fails is left to the next one,
// which is due a minute later. Thread-safe.
class Purger {
 public:
  // `store` must outlive this object.
  Purger(Store& store, int64_t term);
  // Ends after the piece that runs.
  ~Purger();

  // Starts a purge when the running one is over. Of several that wait, the newest counts: it covers
  // the others.
  void Start(const PurgeResults& what);

 private:
  void Run();
  // Returns nullopt at the end.
  std::optional<PurgePass> TakePass();
  void MakeIndexes();
  void RunPass(PurgePass& pass);
  // Returns false at the end.
  bool Rest(absl::Duration duration);
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || next_.has_value();
  }

  Store& store_;
  const int64_t term_;
  bool has_indexes_ = false;  // used by the thread alone
  absl::Mutex mu_;
  std::optional<PurgeResults> next_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  NamedThread thread_;
};

}  // namespace lathe::engine
