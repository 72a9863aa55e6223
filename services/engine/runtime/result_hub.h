// Who waits for which request, and who may.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/runtime/results.h"
#include "services/engine/store/store.h"

namespace lathe::engine {

struct QueueStatus {
  bool paused = false;
  std::string reason;  // for people
};

// What a waiter is told: the result can be read, or the queue's state changed.
struct ResultUpdate {
  bool done = false;
  bool released = false;  // the engine stops: nobody will be told any more
  QueueStatus queue;
};

// Knows the requests under way (fed by durable commits), answers about finished ones from memory or
// the store. Thread-safe; callbacks run without locks, on the thread that caused them, and must not
// block. One may still run shortly after its Cancel.
class ResultHub {
 public:
  using Callback = std::function<void(const ResultUpdate&)>;

  struct Waiting {
    uint64_t wait_id = 0;  // for Cancel
    QueueStatus queue;     // at this moment
  };

  // All must outlive this.
  ResultHub(Store& store, Results& results) : store_(store), results_(results) {}

  // ---- fed by the runtime
  void OnAccepted(const RequestRow& row);
  // Waiters are told of the other group's state.
  void SetGroup(const std::string& request_id, const std::string& group);
  void NotifyDone(const std::string& request_id);
  void SetQueueState(const std::string& group, QueueStatus status);
  // Every waiter is told `released`; none is left.
  void ReleaseAll();

  // ---- for callers
  // The encoded result; null while the request is under way. NotFound for what `tenant_id` has not
  // submitted; OutOfRange ("result_expired") once retention removed the result. Reads the store
  // when the result is not in memory.
  absl::StatusOr<SharedBytes> Find(const std::string& tenant_id, const std::string& request_id);
  // As Find, but only looks in memory: null also for a result that only the store has.
  absl::StatusOr<SharedBytes> FindRecent(const std::string& tenant_id,
                                         const std::string& request_id);
  QueueStatus Queue(const std::string& request_id);
  // True the first time (and for requests that finished too long ago to be remembered).
  bool MarkDelivered(const std::string& request_id);
  // The tenant has received these results: they need no memory any more. Others' ids do nothing.
  void Release(const std::string& tenant_id, std::span<const std::string> request_ids);

  // Calls `callback` with done = true once the result can be read (never before this returns on
  // another state), and with done = false for changes of the queue's state before that.
  // AlreadyExists when it is done; errors as Find.
  absl::StatusOr<Waiting> Wait(const std::string& tenant_id, const std::string& request_id,
                               Callback callback);
  void Cancel(const std::string& request_id, uint64_t wait_id);

  // Requests under way by owner (model, session or sampling session), and in all.
  std::map<std::string, int64_t> PendingByOwner();

 private:
  struct Pending {
    std::string tenant_id;
    std::string owner_id;
    std::string group;
    std::map<uint64_t, Callback> waiters;
  };

  struct Finished {
    std::string tenant_id;
    bool delivered = false;
  };

  void RememberLocked(const std::string& request_id, std::string tenant_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  QueueStatus QueueLocked(const Pending& pending) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsPending(const std::string& request_id);
  absl::StatusOr<SharedBytes> FindFinished(const std::string& tenant_id,
                                           const std::string& request_id);

  Store& store_;
  Results& results_;
  absl::Mutex mu_;
  uint64_t next_wait_ ABSL_GUARDED_BY(mu_) = 1;
  std::unordered_map<std::string, Pending> pending_ ABSL_GUARDED_BY(mu_);  // by request id
  std::map<std::string, QueueStatus> paused_groups_ ABSL_GUARDED_BY(mu_);
  // Finished requests whose results may still be in memory; bounded.
  std::unordered_map<std::string, Finished> finished_ ABSL_GUARDED_BY(mu_);  // by request id
  std::vector<std::string> finished_order_ ABSL_GUARDED_BY(mu_);
  size_t finished_next_ ABSL_GUARDED_BY(mu_) = 0;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine
