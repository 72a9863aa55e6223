// The engine-store thread, which writes to the store with group commit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/engine/core/actions.h"
#include "services/engine/runtime/bodies.h"
#include "services/engine/series/points.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

// Commits items in order. All that arrive during one transaction go into the next, up to kMaxWrites
// writes or kMaxBytes of bodies and results. There is no timer. After a failed transaction, nothing
// more is written or acknowledged. The exception is a full disk: the store has then kept nothing,
// and the transaction is tried again.
class CommitLoop {
 public:
  static constexpr size_t kMaxWrites = 256;
  static constexpr size_t kMaxBytes = 1 << 20;
  // Memory of users' points that wait, of all tenants and of one, and in a transaction.
  static constexpr int64_t kMaxUserBytes = 8 << 20;
  static constexpr int64_t kMaxTenantBytes = 2 << 20;
  static constexpr int64_t kMaxGroupUserBytes = 1 << 20;

  // One Commit of the core with the bytes that its writes name.
  struct Item {
    struct NamedBytes {
      std::string id;
      SharedBytes bytes;
    };
    Commit commit;
    std::vector<NamedBytes> blobs;
  };

  // Points of a user. `on_durable` runs on the store's thread once they are durable.
  struct UserPoints {
    PointEntryPtr entry;
    std::function<void()> on_durable;
  };

  struct Callbacks {
    // Returns the points that the results of these items have, which are made durable with them.
    // Runs on the store's thread. May be empty.
    std::function<std::vector<PointEntryPtr>(const std::vector<Item>&)> points_of = {};
    // Called when a batch of points is durable, before on_durable. Runs on the store's thread. May
    // be empty.
    std::function<void(int64_t journal_id, const std::vector<PointEntryPtr>&)> on_points = {};
    // Called when all of these items are durable, in order. Runs on the store's thread.
    std::function<void(const std::vector<Item>&)> on_durable;
    // Called with an error while the store's disk is full and the transaction is retried, and with
    // OK once there is room. Runs on the store's thread. May be empty.
    std::function<void(const absl::Status&)> on_full = {};
    // Called once, when the store refused or failed. Runs on the store's thread.
    std::function<void(const absl::Status&)> on_failure;
    // Called with the duration of a transaction and its number of writes, before on_durable. Runs
    // on the store's thread. May be empty.
    std::function<void(absl::Duration, size_t num_writes)> on_timed = {};
  };

  // `store` must outlive this object.
  CommitLoop(Store& store, int64_t term, Callbacks callbacks);
  // Commits the queued items, then ends the thread.
  ~CommitLoop();

  void Enqueue(Item item);
  // Makes the points durable with one of the next groups, in the order of the calls. Returns
  // ResourceExhausted when too many wait.
  absl::Status TryEnqueue(UserPoints points);

 private:
  // All that one transaction makes durable.
  struct Group {
    std::vector<Item> items;
    std::vector<UserPoints> users;
    std::vector<PointEntryPtr> points;  // of both
    int64_t journal_id = 0;             // of the points; 0: there are none
    bool empty() const { return items.empty() && users.empty(); }
  };

  bool HasWorkLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closed_ || !queue_.empty() || !users_.empty();
  }
  void Run();
  bool IsClosedWithin(absl::Duration pause);
  // Waits for items and takes the next group. Returns an empty group once the loop is closed and
  // its queue is empty.
  Group TakeGroup();
  // Takes the oldest points of users, within the bound of a transaction.
  void TakeUsersLocked(Group& group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Collects the points of a group.
  void AddPoints(Group& group);
  absl::Status CommitGroup(const Group& group);
  // Repeats CommitGroup while the disk is full and the loop is not closed.
  absl::Status CommitWhenThereIsRoom(const Group& group);
  absl::Status CommitWrites(const std::vector<Write>& writes, const std::vector<Blob>& blobs);

  Store& store_;
  const int64_t term_;
  const Callbacks callbacks_;
  absl::Mutex mu_;
  std::vector<Item> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<UserPoints> users_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, int64_t> user_bytes_ ABSL_GUARDED_BY(mu_);  // by tenant
  int64_t all_user_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t num_batches_ = 0;  // used by the thread alone
  NamedThread thread_;
};

}  // namespace lathe::engine
