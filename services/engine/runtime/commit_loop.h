// The store's thread: group commit.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/core/actions.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Everything that arrives while one transaction runs goes into the next, at most kMaxWrites writes
// or kMaxBytes of bodies and results; order is kept and there is no timer. After a failed
// transaction nothing more is written or acknowledged; only one that found no room on the disk, of
// which the store has kept nothing, is tried again.
class CommitLoop {
 public:
  static constexpr size_t kMaxWrites = 256;
  static constexpr size_t kMaxBytes = 1 << 20;

  // One Commit with the bytes its writes name.
  struct Item {
    struct NamedBytes {
      std::string id;
      SharedBytes bytes;
    };
    Commit commit;
    std::vector<NamedBytes> blobs;
  };

  struct Callbacks {
    // All of these items are durable, in order. On the store's thread.
    std::function<void(const std::vector<Item>&)> on_durable;
    // The store's disk is full: the transaction is tried again until there is room. OK: there is.
    // On the store's thread; may be empty.
    std::function<void(const absl::Status&)> on_full = {};
    // The store refused or failed. On the store's thread, once.
    std::function<void(const absl::Status&)> on_failure;
    // How long the store took for a transaction of so many writes; may be empty. On the store's
    // thread, before on_durable.
    std::function<void(absl::Duration, size_t num_writes)> on_timed = {};
  };

  // `store` must outlive this.
  CommitLoop(Store& store, int64_t term, Callbacks callbacks);
  // Commits what is queued, then ends the thread.
  ~CommitLoop();

  void Enqueue(Item item);

 private:
  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !queue_.empty();
  }
  void Run();
  bool IsClosedWithin(absl::Duration pause);
  // Empty once closed and empty.
  std::vector<Item> TakeGroup();
  absl::Status CommitGroup(const std::vector<Item>& group);
  // CommitGroup while the disk is full and the loop is not closed.
  absl::Status CommitWhenThereIsRoom(const std::vector<Item>& group);
  absl::Status CommitWrites(const std::vector<Write>& writes, const std::vector<Blob>& blobs);

  Store& store_;
  const int64_t term_;
  const Callbacks callbacks_;
  absl::Mutex mu_;
  std::vector<Item> queue_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  NamedThread thread_;
};

}  // namespace lathe::engine
