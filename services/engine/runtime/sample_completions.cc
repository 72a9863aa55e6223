#include "services/engine/runtime/sample_completions.h"

#include <utility>

namespace lathe::engine {
namespace {

CompletionQueueId QueueOf(const std::string& tenant_id, const std::string& sampling_session_id,
                          int64_t seq_id) {
  return {tenant_id, sampling_session_id, seq_id / CompletionQueueId::kSeqsPerClone};
}

}  // namespace

void SampleCompletions::Load(std::span<const CompletionRow> rows, int64_t term) {
  absl::MutexLock lock(&mu_);
  numbers_end_ = CompletionNumber(term + 1, 0);
  for (const CompletionRow& row : rows) {
    const CompletionQueueId id = QueueOf(row.tenant_id, row.sampling_session_id, row.seq_id);
    const bool failed = row.state == RequestState::kFailed;
    AddLocked(queues_.try_emplace(id).first, row.completion_number,
              {{row.request_id, failed, row.result_bytes}, row.done_at});
  }
}

void SampleCompletions::OnAccepted(const RequestRow& row) {
  if (row.op_class != OpClass::kSample) return;
  absl::MutexLock lock(&mu_);
  const CompletionQueueId id = QueueOf(row.tenant_id, row.owner_id, row.seq_id);
  const auto queue = queues_.try_emplace(id).first;
  ++queue->second.num_pending;
  places_.insert_or_assign(row.request_id, Place{.queue = queue, .number = 0});
}

void SampleCompletions::OnCompleted(const CompleteRequest& write, int64_t result_bytes) {
  absl::MutexLock lock(&mu_);
  const auto found = places_.find(write.request_id);
  if (found == places_.end() || found->second.number > 0) return;
  const Queues::iterator queue = found->second.queue;
  --queue->second.num_pending;
  const bool failed = write.state == RequestState::kFailed;
  AddLocked(queue, write.completion_number,
            {{write.request_id, failed, result_bytes}, write.done_at});
}

void SampleCompletions::AddLocked(Queues::iterator queue, int64_t number, Entry entry) {
  places_.insert_or_assign(entry.completion.request_id, Place{.queue = queue, .number = number});
  queue->second.entries.insert_or_assign(number, std::move(entry));
  if (!queue->second.waiters.empty()) grown_.insert(queue->first);
}

void SampleCompletions::OnDelivered(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = places_.find(request_id);
  if (found == places_.end() || found->second.number == 0) return;
  const Place place = found->second;
  places_.erase(found);
  place.queue->second.entries.erase(place.number);
  EraseIfEmptyLocked(place.queue);
}

void SampleCompletions::ForgetBefore(int64_t done_at) {
  absl::MutexLock lock(&mu_);
  for (auto it = queues_.begin(); it != queues_.end();) {
    const auto queue = it++;
    std::erase_if(queue->second.entries, [&](const auto& numbered) {
      mu_.AssertHeld();
      const Entry& entry = numbered.second;
      if (entry.done_at >= done_at) return false;
      places_.erase(entry.completion.request_id);
      return true;
    });
    EraseIfEmptyLocked(queue);
  }
}

void SampleCompletions::EraseIfEmptyLocked(Queues::iterator queue) {
  const Queue& content = queue->second;
  if (content.num_pending > 0 || !content.entries.empty() || !content.waiters.empty()) return;
  queues_.erase(queue);
}

void SampleCompletions::WakeWaiters() {
  std::vector<Callback> callbacks;
  {
    absl::MutexLock lock(&mu_);
    for (const CompletionQueueId& id : grown_) {
      const auto queue = queues_.find(id);
      if (queue == queues_.end()) continue;
      for (auto& [wait_id, callback] : queue->second.waiters) {
        callbacks.push_back(std::move(callback));
      }
      queue->second.waiters.clear();
      EraseIfEmptyLocked(queue);
    }
    grown_.clear();
  }
  for (const Callback& callback : callbacks) callback();
}

void SampleCompletions::ReleaseAll() {
  std::vector<Callback> callbacks;
  {
    absl::MutexLock lock(&mu_);
    released_ = true;
    for (auto& [id, queue] : queues_) {
      for (auto& [wait_id, callback] : queue.waiters) callbacks.push_back(std::move(callback));
      queue.waiters.clear();
    }
  }
  for (const Callback& callback : callbacks) callback();
}

int64_t SampleCompletions::FromLocked(int64_t cursor) const {
  return cursor < numbers_end_ ? cursor : 0;
}

SampleCompletions::Batch SampleCompletions::Take(const CompletionQueueId& id, int64_t cursor) {
  absl::MutexLock lock(&mu_);
  Batch batch{.completions = {}, .cursor = cursor};
  const auto queue = queues_.find(id);
  if (queue == queues_.end()) return batch;
  std::map<int64_t, Entry>& entries = queue->second.entries;
  const auto begin = entries.upper_bound(FromLocked(cursor));
  for (auto it = entries.begin(); it != begin; ++it) {
    places_.erase(it->second.completion.request_id);
  }
  entries.erase(entries.begin(), begin);
  for (const auto& [number, entry] : entries) {
    if (batch.completions.size() == kMaxBatch) break;
    batch.completions.push_back(entry.completion);
    batch.cursor = number;
  }
  EraseIfEmptyLocked(queue);
  return batch;
}

uint64_t SampleCompletions::Wait(const CompletionQueueId& id, int64_t cursor, Callback callback) {
  absl::MutexLock lock(&mu_);
  if (released_) return 0;
  const auto found = queues_.find(id);
  if (found != queues_.end()) {
    const std::map<int64_t, Entry>& entries = found->second.entries;
    if (entries.upper_bound(FromLocked(cursor)) != entries.end()) return 0;
  }
  const uint64_t wait_id = next_wait_++;
  queues_[id].waiters.emplace(wait_id, std::move(callback));
  return wait_id;
}

void SampleCompletions::Cancel(const CompletionQueueId& id, uint64_t wait_id) {
  absl::MutexLock lock(&mu_);
  const auto queue = queues_.find(id);
  if (queue == queues_.end()) return;
  queue->second.waiters.erase(wait_id);
  EraseIfEmptyLocked(queue);
}

}  // namespace lathe::engine
