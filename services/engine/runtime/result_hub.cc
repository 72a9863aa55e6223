#include "services/engine/runtime/result_hub.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/runtime/result_points.h"

namespace lathe::engine {
namespace {

constexpr size_t kMaxRemembered = 65536;

absl::Status UnknownRequest(const std::string& request_id) {
  return WithDetail(absl::NotFoundError(absl::StrCat("request '", request_id, "' does not exist")),
                    "not_found", "request_id");
}

}  // namespace

void ResultHub::OnAccepted(const RequestRow& row) {
  const std::optional<double> learning_rate = LearningRateOf(row);
  absl::MutexLock lock(&mu_);
  const auto [found, is_new] = pending_.try_emplace(row.request_id);
  if (is_new) ++num_pending_of_[row.tenant_id][row.owner_id];
  Pending& pending = found->second;
  pending.tenant_id = row.tenant_id;
  pending.owner_id = row.owner_id;
  pending.kind = row.kind;
  pending.tokens = row.tokens;
  pending.learning_rate = learning_rate;
}

std::optional<ResultHub::Facts> ResultHub::FactsOf(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = pending_.find(request_id);
  if (found == pending_.end()) return std::nullopt;
  const Pending& pending = found->second;
  return Facts{.tenant_id = pending.tenant_id,
               .owner_id = pending.owner_id,
               .kind = pending.kind,
               .tokens = pending.tokens,
               .learning_rate = pending.learning_rate};
}

void ResultHub::SetGroup(const std::string& request_id, const std::string& group) {
  absl::MutexLock lock(&mu_);
  const auto found = pending_.find(request_id);
  if (found != pending_.end()) found->second.group = group;
}

void ResultHub::NotifyDone(const std::string& request_id) {
  std::map<uint64_t, Callback> waiters;
  {
    absl::MutexLock lock(&mu_);
    const auto found = pending_.find(request_id);
    if (found == pending_.end()) return;
    waiters = std::move(found->second.waiters);
    RememberLocked(request_id, found->second.tenant_id);
    ErasePendingLocked(found);
  }
  for (const auto& [wait_id, callback] : waiters) callback(WaitEnd::kDone);
}

void ResultHub::ErasePendingLocked(std::unordered_map<std::string, Pending>::iterator pending) {
  const auto tenant = num_pending_of_.find(pending->second.tenant_id);
  const auto count = tenant->second.find(pending->second.owner_id);
  if (--count->second == 0) tenant->second.erase(count);
  if (tenant->second.empty()) num_pending_of_.erase(tenant);
  pending_.erase(pending);
}

void ResultHub::RememberLocked(const std::string& request_id, std::string tenant_id) {
  // A ring buffer: a new entry replaces the oldest one.
  if (finished_order_.size() < kMaxRemembered) {
    finished_order_.push_back(request_id);
  } else {
    finished_.erase(finished_order_[finished_next_]);
    finished_order_[finished_next_] = request_id;
    finished_next_ = (finished_next_ + 1) % kMaxRemembered;
  }
  finished_[request_id] = {std::move(tenant_id)};
}

bool ResultHub::MarkDelivered(const std::string& tenant_id, const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = finished_.find(request_id);
  if (found == finished_.end()) return !pending_.contains(request_id);
  return found->second.tenant_id == tenant_id && !std::exchange(found->second.delivered, true);
}

void ResultHub::Release(const std::string& tenant_id, std::span<const std::string> request_ids) {
  // Release the lock between batches: a client chooses the number of ids, and all results wait for
  // the lock.
  constexpr size_t kMostAtOnce = 256;
  while (!request_ids.empty()) {
    const size_t count = std::min(kMostAtOnce, request_ids.size());
    absl::MutexLock lock(&mu_);
    for (const std::string& request_id : request_ids.first(count)) {
      const auto found = finished_.find(request_id);
      const bool is_known = found != finished_.end() && found->second.tenant_id == tenant_id;
      if (is_known) results_.Drop(request_id);
    }
    request_ids = request_ids.subspan(count);
  }
}

void ResultHub::SetQueueState(const std::string& group, QueueStatus status) {
  absl::MutexLock lock(&mu_);
  if (status.paused) {
    paused_groups_[group] = std::move(status);
  } else {
    paused_groups_.erase(group);
  }
}

std::map<std::string, QueueStatus> ResultHub::PausedGroups() {
  absl::MutexLock lock(&mu_);
  return paused_groups_;
}

void ResultHub::ReleaseAll() {
  std::vector<Callback> waiters;
  {
    absl::MutexLock lock(&mu_);
    released_ = true;
    for (auto& [request_id, pending] : pending_) {
      for (auto& [wait_id, callback] : pending.waiters) waiters.push_back(std::move(callback));
      pending.waiters.clear();
    }
  }
  for (const Callback& callback : waiters) callback(WaitEnd::kReleased);
}

absl::StatusOr<SharedBytes> ResultHub::Find(const std::string& tenant_id,
                                            const std::string& request_id) {
  ASSIGN_OR_RETURN(InMemory found, FindInMemory(tenant_id, request_id));
  if (found.bytes != nullptr || found.is_pending) return std::move(found.bytes);
  return FindFinished(tenant_id, request_id);
}

absl::StatusOr<SharedBytes> ResultHub::FindRecent(const std::string& tenant_id,
                                                  const std::string& request_id) {
  ASSIGN_OR_RETURN(InMemory found, FindInMemory(tenant_id, request_id));
  return std::move(found.bytes);
}

absl::StatusOr<ResultHub::InMemory> ResultHub::FindInMemory(const std::string& tenant_id,
                                                            const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto pending = pending_.find(request_id);
  if (pending != pending_.end()) {
    if (pending->second.tenant_id != tenant_id) return UnknownRequest(request_id);
    return InMemory{.is_pending = true};
  }
  const auto finished = finished_.find(request_id);
  if (finished == finished_.end()) return InMemory{};
  if (finished->second.tenant_id != tenant_id) return UnknownRequest(request_id);
  return InMemory{.bytes = results_.Recent(request_id)};
}

absl::StatusOr<SharedBytes> ResultHub::FindFinished(const std::string& tenant_id,
                                                    const std::string& request_id) {
  ASSIGN_OR_RETURN(const std::optional<RequestStatus> status,
                   store_.FindRequest(tenant_id, request_id));
  if (!status) return UnknownRequest(request_id);
  ASSIGN_OR_RETURN(std::optional<StoredResult> result, store_.ReadResult(tenant_id, request_id));
  if (result) return std::make_shared<const std::string>(std::move(result->bytes));
  if (!status->result_expired) return SharedBytes();  // between its commit and NotifyDone
  return WithDetail(
      absl::OutOfRangeError(absl::StrCat("the result of request '", request_id,
                                         "' is gone: results are kept for 1 h after their first "
                                         "delivery, else for 24 h; of results that nobody has "
                                         "fetched, the tenant's quota of unfetched_results and "
                                         "unfetched_bytes keeps the newest")),
      "result_expired", "request_id");
}

QueueStatus ResultHub::Queue(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto found = pending_.find(request_id);
  return found == pending_.end() ? QueueStatus{} : QueueLocked(found->second);
}

QueueStatus ResultHub::QueueLocked(const Pending& pending) const {
  const auto found = paused_groups_.find(pending.group);
  return found == paused_groups_.end() ? QueueStatus{} : found->second;
}

absl::StatusOr<ResultHub::Waiting> ResultHub::Wait(const std::string& tenant_id,
                                                   const std::string& request_id,
                                                   Callback callback) {
  {
    absl::MutexLock lock(&mu_);
    const auto found = pending_.find(request_id);
    if (found != pending_.end()) {
      Pending& pending = found->second;
      if (pending.tenant_id != tenant_id) return UnknownRequest(request_id);
      if (released_) return absl::UnavailableError("the engine is stopping");
      Waiting waiting{.wait_id = next_wait_++, .queue = QueueLocked(pending)};
      pending.waiters.emplace(waiting.wait_id, std::move(callback));
      return waiting;
    }
  }
  RETURN_IF_ERROR(Find(tenant_id, request_id).status());
  return absl::AlreadyExistsError("the result is there");
}

void ResultHub::Cancel(const std::string& request_id, uint64_t wait_id) {
  absl::MutexLock lock(&mu_);
  const auto found = pending_.find(request_id);
  if (found != pending_.end()) found->second.waiters.erase(wait_id);
}

int64_t ResultHub::NumPending() {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(pending_.size());
}

int64_t ResultHub::NumPendingOf(const std::string& tenant_id, const std::string& owner_id) {
  absl::MutexLock lock(&mu_);
  const auto tenant = num_pending_of_.find(tenant_id);
  if (tenant == num_pending_of_.end()) return 0;
  const auto found = tenant->second.find(owner_id);
  return found == tenant->second.end() ? 0 : found->second;
}

std::unordered_map<std::string, int64_t> ResultHub::NumPendingByOwner(
    const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  const auto tenant = num_pending_of_.find(tenant_id);
  if (tenant == num_pending_of_.end()) return {};
  return tenant->second;
}

}  // namespace lathe::engine
