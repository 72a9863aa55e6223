// Notifies clients that wait for many samples at once which of them have ended.
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

// Identifies the samples of one copy of a sampling client. Copy N numbers its requests from N *
// 10^9 on; the original is copy 0.
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
  int64_t result_bytes = 0;  // encoded size; 0: unknown
};

// Completions by queue, in order of their numbers. A completion is kept until it is acknowledged,
// or until its result is delivered or expires. All of them come from durable state, so a restart
// loses none. Thread-safe. Callbacks run without locks, on the thread that caused them, and must
// not block. A callback may still run shortly after its Cancel.
class SampleCompletions {
 public:
  static constexpr size_t kMaxBatch = 4096;

  struct Batch {
    std::vector<SampleCompletion> completions;
    int64_t cursor = 0;  // number of the last one; the caller's cursor if there is none
  };
  using Callback = std::function<void()>;

  // ---- Called by the runtime, with durable state.
  // Loads what an earlier leader left. This leader numbers from CompletionNumber(term, 1) on.
  void Load(std::span<const CompletionRow> rows, int64_t term);
  void OnAccepted(const RequestRow& row);
  void OnCompleted(const CompleteRequest& write, int64_t result_bytes);
  void OnDelivered(const std::string& request_id);
  // Drops completions of requests that ended before `done_at`: their results have expired
  // undelivered.
  void ForgetBefore(int64_t done_at);
  // Calls the waiters whose queues have grown since the last call.
  void WakeWaiters();
  // Calls all waiters. From then on no call can wait.
  void ReleaseAll();

  // ---- Called for clients.
  // Acknowledges the completions up to `cursor` and returns the next ones, at most kMaxBatch. A
  // cursor that no engine of this store can have issued counts as 0: its client may have missed
  // everything.
  Batch Take(const CompletionQueueId& id, int64_t cursor);
  // Calls `callback` once, when the queue has grown. Returns the number for Cancel. Returns 0, and
  // never calls `callback`, when there is a completion already or ReleaseAll was called.
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
  // Position of a request; number 0 while it is unfinished.
  struct Place {
    Queues::iterator queue;
    int64_t number = 0;
  };

  int64_t FromLocked(int64_t cursor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLocked(Queues::iterator queue, int64_t number, Entry entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Erases a queue that has no entries, waiters or unfinished requests.
  void EraseIfEmptyLocked(Queues::iterator queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  Queues queues_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Place> places_ ABSL_GUARDED_BY(mu_);  // by request id
  std::set<CompletionQueueId> grown_ ABSL_GUARDED_BY(mu_);    // queues with waiters
  int64_t numbers_end_ ABSL_GUARDED_BY(mu_) = 0;              // every issued number is below it
  uint64_t next_wait_ ABSL_GUARDED_BY(mu_) = 1;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lathe::engine
