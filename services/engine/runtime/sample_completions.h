// Which samples have ended, told to the clients that wait for many at once.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Whose samples: one copy of a sampling client. Copies number their requests from 10^9 times their
// number on; the original is 0.
struct CompletionQueueId {
  static constexpr int64_t kSeqsPerClone = 1'000'000'000;

  std::string tenant_id;
  std::string sampling_session_id;
  int64_t clone_number = 0;

  std::strong_ordering operator<=>(const CompletionQueueId&) const = default;
};

struct SampleCompletion {
  std::string request_id;
  bool failed = false;
  int64_t result_bytes = 0;  // encoded; 0: unknown
};

// Completions by queue, in order of their numbers. One is kept until it was acknowledged, or its
// result was delivered or has expired; all of them come from durable state, so a restart forgets
// none. Thread-safe; callbacks run without locks, on the thread that caused them, and must not
// block. One may still run shortly after its Cancel.
class SampleCompletions {
 public:
  static constexpr size_t kMaxBatch = 4096;

  struct Batch {
    std::vector<SampleCompletion> completions;
    int64_t cursor = 0;  // of the last one; as asked when there is none
  };
  using Callback = std::function<void()>;

  // ---- fed by the runtime, with what is durable
  // What an earlier leader left; this one numbers from CompletionNumber(term, 1) on.
  void Load(std::span<const CompletionRow> rows, int64_t term);
  void OnAccepted(const RequestRow& row);
  void OnCompleted(const CompleteRequest& write, int64_t result_bytes);
  void OnDelivered(const std::string& request_id);
  // Results that nobody fetched of requests done before have expired.
  void ForgetBefore(int64_t done_at);
  // Calls those whose queues have grown since the last time.
  void WakeWaiters();
  // Calls everybody; nobody can wait from now on.
  void ReleaseAll();

  // ---- for callers
  // The first kMaxBatch completions after `cursor`; those up to it are acknowledged. A cursor that
  // no engine of this store can have given counts as 0: its owner has missed everything.
  Batch Take(const CompletionQueueId& id, int64_t cursor);
  // Calls `callback` once when the queue has grown. 0: there is something already, or ReleaseAll
  // was called, and no callback comes; else the number for Cancel.
  uint64_t Wait(const CompletionQueueId& id, int64_t cursor, Callback callback);
  void Cancel(const CompletionQueueId& id, uint64_t wait_id);

 private:
  struct Entry {
    SampleCompletion completion;
    int64_t done_at = 0;
  };
  struct Queue {
    std::map<int64_t, Entry> entries;  // by completion number
    std::map<uint64_t, Callback> waiters;
    int64_t num_pending = 0;
  };
  using Queues = std::map<CompletionQueueId, Queue>;
  // Where a request is; number 0 while it is under way.
  struct Place {
    Queues::iterator queue;
    int64_t number = 0;
  };

  int64_t FromLocked(int64_t cursor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLocked(Queues::iterator queue, int64_t number, Entry entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Keeps no queue that nobody knows of.
  void EraseIfEmptyLocked(Queues::iterator queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Queues queues_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Place> places_ ABSL_GUARDED_BY(mu_);  // by request id
  std::set<CompletionQueueId> grown_ ABSL_GUARDED_BY(mu_);    // with waiters
  int64_t numbers_end_ ABSL_GUARDED_BY(mu_) = 0;              // no number reaches it
  uint64_t next_wait_ ABSL_GUARDED_BY(mu_) = 1;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine
