// Tracks the callers that wait for results, and checks their tenant.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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
  std::string reason;  // description for people
};

// Why a wait ends.
enum class WaitEnd {
  kDone,      // the result can be read
  kReleased,  // the engine stops
};

// Tracks unfinished requests, from durable commits. Answers about finished ones from memory or the
// store. Thread-safe. Callbacks run without locks, on the thread that caused them, and must not
// block. A callback may still run shortly after its Cancel.
class ResultHub {
 public:
  using Callback = std::function<void(WaitEnd)>;

  struct Waiting {
    uint64_t wait_id = 0;  // argument for Cancel
    QueueStatus queue;     // state when the wait began
  };

  // `store` and `results` must outlive this object.
  ResultHub(Store& store, Results& results) : store_(store), results_(results) {}

  // ---- Called by the runtime.
  void OnAccepted(const RequestRow& row);
  // Facts about an unfinished request.
  struct Facts {
    std::string tenant_id;
    std::string owner_id;
    OperationKind kind = OperationKind::kForwardBackward;
    int64_t tokens = 0;
    std::optional<double> learning_rate = std::nullopt;  // of an optim_step
  };
  std::optional<Facts> FactsOf(const std::string& request_id);
  // Sets the group of a request, whose state now applies to it.
  void SetGroup(const std::string& request_id, const std::string& group);
  void NotifyDone(const std::string& request_id);
  // Sets the state of a group. It costs the same for any number of waiting requests: callers ask
  // for the state (Queue) when they need it.
  void SetQueueState(const std::string& group, QueueStatus status);
  // Ends every wait with kReleased.
  void ReleaseAll();

  // ---- Called for clients.
  // Returns the encoded result, or null while the request is unfinished. Returns NotFound when
  // `tenant_id` has not submitted it, and OutOfRange ("result_expired") once retention removed the
  // result. Reads the store when the result is not in memory.
  absl::StatusOr<SharedBytes> Find(const std::string& tenant_id, const std::string& request_id);
  // Like Find, but looks only in memory: returns null also for a result that only the store has.
  absl::StatusOr<SharedBytes> FindRecent(const std::string& tenant_id,
                                         const std::string& request_id);
  QueueStatus Queue(const std::string& request_id);
  // Returns true the first time, and for requests that finished too long ago to be in memory.
  // Returns false for requests that are known to be another tenant's.
  bool MarkDelivered(const std::string& tenant_id, const std::string& request_id);
  // Drops results from memory that the tenant has received. Ids of other tenants have no effect.
  void Release(const std::string& tenant_id, std::span<const std::string> request_ids);

  // Calls `callback` once. Returns AlreadyExists when the result is ready, and the errors of Find.
  absl::StatusOr<Waiting> Wait(const std::string& tenant_id, const std::string& request_id,
                               Callback callback);
  void Cancel(const std::string& request_id, uint64_t wait_id);

  // Returns the groups that are not ready, with the reasons.
  std::map<std::string, QueueStatus> PausedGroups();
  // Returns the number of unfinished requests.
  int64_t NumPending();
  // Returns the number of unfinished requests of a tenant's model, session or sampling session.
  int64_t NumPendingOf(const std::string& tenant_id, const std::string& owner_id);
  // Returns the number of unfinished requests of every such owner that has any.
  std::unordered_map<std::string, int64_t> NumPendingByOwner(const std::string& tenant_id);

 private:
  struct Pending {
    std::string tenant_id;
    std::string owner_id;
    OperationKind kind = OperationKind::kForwardBackward;
    int64_t tokens = 0;
    std::optional<double> learning_rate;
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
  void ErasePendingLocked(std::unordered_map<std::string, Pending>::iterator pending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A request as memory has it; both are empty if it is not known. One lock covers the check of the
  // tenant and the result.
  struct InMemory {
    bool is_pending = false;
    SharedBytes bytes;
  };
  absl::StatusOr<InMemory> FindInMemory(const std::string& tenant_id,
                                        const std::string& request_id);
  absl::StatusOr<SharedBytes> FindFinished(const std::string& tenant_id,
                                           const std::string& request_id);

  Store& store_;
  Results& results_;
  absl::Mutex mu_;
  uint64_t next_wait_ ABSL_GUARDED_BY(mu_) = 1;
  std::unordered_map<std::string, Pending> pending_ ABSL_GUARDED_BY(mu_);  // by request id
  // Number of entries in pending_, by tenant and owner.
  std::unordered_map<std::string, std::unordered_map<std::string, int64_t>> num_pending_of_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, QueueStatus> paused_groups_ ABSL_GUARDED_BY(mu_);
  // Finished requests whose results may still be in memory. Bounded.
  std::unordered_map<std::string, Finished> finished_ ABSL_GUARDED_BY(mu_);  // by request id
  std::vector<std::string> finished_order_ ABSL_GUARDED_BY(mu_);
  size_t finished_next_ ABSL_GUARDED_BY(mu_) = 0;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine
