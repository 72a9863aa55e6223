#include "services/engine/runtime/queue_view.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lathe::engine {
namespace {

std::string WaitReason(const QueuePlace& place) {
  if (place.is_running) return "at a worker";
  if (place.missing_seq > 0) {
    return absl::StrFormat(
        "waiting for seq %d, which has not arrived; continues without it in %d s",
        place.missing_seq, (place.gap_closes_in + 999'999'999) / 1'000'000'000);
  }
  if (place.after_seq > 0) {
    return absl::StrCat("waiting for ", std::string(TraitsOf(place.after_kind).name), " seq ",
                        place.after_seq, " of its model");
  }
  return "waiting for its turn";
}

std::string Before(const QueuePlace& place) {
  if (place.requests_before == 0) return "";
  const bool is_one = place.requests_before == 1;
  std::string text = absl::StrCat("; ", place.requests_before, is_one ? " request" : " requests");
  if (place.tokens_before > 0) {
    absl::StrAppend(&text, " with ", place.tokens_before,
                    place.tokens_before == 1 ? " token" : " tokens");
  }
  return text + (is_one ? " is before it" : " are before it");
}

}  // namespace

void QueueView::OnAccepted(const RequestRow& row) {
  const bool is_model = row.op_class == OpClass::kTrain || row.op_class == OpClass::kUnload;
  const int64_t tokens = row.op_class == OpClass::kSample ? 0 : row.tokens;
  absl::MutexLock lock(&mu_);
  const Order order = ++last_order_;
  Owner& owner = owners_[row.owner_id];
  owner.is_model = is_model;
  owner.items[order] = {.kind = row.kind, .seq = row.seq_id};
  if (is_model && TraitsOf(row.kind).is_barrier) owner.barriers.insert(order);
  owner.waiting.Add(order, tokens);
  keys_[row.request_id] = {row.owner_id, order, row.tenant_id};
  CountLocked(row.tenant_id, row.kind, 1, 0);
}

void QueueView::OnDispatched(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return;
  Owner& owner = owners_.at(key->second.owner);
  Item& item = owner.items.at(key->second.order);
  if (!item.is_running) CountLocked(key->second.tenant_id, item.kind, -1, 1);
  item.is_running = true;
  owner.waiting.Remove(key->second.order);
}

void QueueView::OnCompleted(const std::string& request_id) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return;
  const auto owner = owners_.find(key->second.owner);
  const Order order = key->second.order;
  const Item item = owner->second.items.at(order);
  CountLocked(key->second.tenant_id, item.kind, item.is_running ? 0 : -1, item.is_running ? -1 : 0);
  owner->second.items.erase(order);
  owner->second.barriers.erase(order);
  owner->second.waiting.Remove(order);
  if (owner->second.items.empty()) owners_.erase(owner);
  keys_.erase(key);
}

void QueueView::CountLocked(const std::string& tenant_id, OperationKind kind, int64_t waiting,
                            int64_t running) {
  const auto tenant = tenant_counts_.try_emplace(tenant_id).first;
  for (Counts* const counts : {&counts_, &tenant->second}) {
    QueueCount& count = (*counts)[kind];
    count.kind = kind;
    count.num_waiting += waiting;
    count.num_running += running;
    if (count.num_waiting == 0 && count.num_running == 0) counts->erase(kind);
  }
  if (tenant->second.empty()) tenant_counts_.erase(tenant);
}

std::vector<QueueCount> QueueView::Listed(const Counts& counts) {
  std::vector<QueueCount> list;
  for (const auto& [kind, count] : counts) list.push_back(count);
  return list;
}

std::vector<QueueCount> QueueView::CountsOf(const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  const auto found = tenant_counts_.find(tenant_id);
  return found == tenant_counts_.end() ? std::vector<QueueCount>() : Listed(found->second);
}

std::vector<QueueCount> QueueView::CountsOfAll() {
  absl::MutexLock lock(&mu_);
  return Listed(counts_);
}

QueueSums QueueView::SumOf(const Counts& counts) {
  QueueSums sums;
  for (const auto& [kind, count] : counts) {
    sums.waiting += count.num_waiting;
    sums.running += count.num_running;
  }
  return sums;
}

QueueSums QueueView::SumsOfAll() {
  absl::MutexLock lock(&mu_);
  return SumOf(counts_);
}

std::vector<TenantQueue> QueueView::Longest(size_t max_tenants) {
  std::vector<TenantQueue> queues;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [tenant_id, counts] : tenant_counts_) {
      queues.push_back({.tenant_id = tenant_id, .sums = SumOf(counts)});
    }
  }
  const auto total = [](const TenantQueue& queue) {
    return queue.sums.waiting + queue.sums.running;
  };
  const size_t num_kept = std::min(max_tenants, queues.size());
  std::ranges::partial_sort(queues, queues.begin() + static_cast<int64_t>(num_kept),
                            std::ranges::greater(), total);
  queues.resize(num_kept);
  return queues;
}

void QueueView::SetModelState(const NotifyModelState& state) {
  absl::MutexLock lock(&mu_);
  if (state.is_away || state.missing_seq > 0 || !state.reason.empty()) {
    model_states_[state.model_id] = state;
  } else {
    model_states_.erase(state.model_id);
  }
}

std::string QueueView::ReasonOf(const std::string& model_id) {
  absl::MutexLock lock(&mu_);
  const auto found = model_states_.find(model_id);
  return found == model_states_.end() ? "" : found->second.reason;
}

const QueueView::Item* QueueView::Predecessor(const Owner& owner, Order order) {
  if (!owner.is_model) return nullptr;
  if (owner.barriers.contains(order)) {
    const auto item = owner.items.find(order);
    return item == owner.items.begin() ? nullptr : &std::prev(item)->second;
  }
  const auto barrier = owner.barriers.lower_bound(order);
  if (barrier == owner.barriers.begin()) return nullptr;
  return &owner.items.at(*std::prev(barrier));
}

std::optional<QueuePlace> QueueView::PlaceOf(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return std::nullopt;
  const auto& [owner_id, order, tenant_id] = key->second;
  const Owner& owner = owners_.at(owner_id);
  const Item& item = owner.items.at(order);
  QueuePlace place;
  place.is_running = item.is_running;
  if (!item.is_running) {
    const WaitingOrder::Sum before = owner.waiting.Before(order, num_visited_);
    place.requests_before = before.requests;
    place.tokens_before = before.tokens;
    if (const Item* const first = Predecessor(owner, order)) {
      place.after_kind = first->kind;
      place.after_seq = first->seq;
    }
  }
  const auto found = model_states_.find(owner_id);
  if (found == model_states_.end()) return place;
  const NotifyModelState& state = found->second;
  place.is_model_away = state.is_away;
  place.model_reason = state.reason;
  if (!item.is_running && state.missing_seq > 0 && state.missing_seq < item.seq) {
    place.missing_seq = state.missing_seq;
    place.gap_closes_in = std::max<int64_t>(0, state.gap_closes_at - now);
  }
  return place;
}

int64_t QueueView::NumVisitedForTest() {
  absl::MutexLock lock(&mu_);
  return num_visited_;
}

QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place) {
  QueueStatus status = group;
  if (!place) return status;
  // Nothing of a model runs while no worker has its state.
  const bool is_held_up =
      !place->model_reason.empty() && (!place->is_running || place->is_model_away);
  if (is_held_up) {
    absl::StrAppend(&status.reason, status.paused ? "; " : "", place->model_reason);
    status.paused = true;
  } else if (!status.paused && place->is_model_away) {
    status.paused = true;
    status.reason = "its model is being recovered on a worker";
  } else if (!status.paused) {
    status.reason = WaitReason(*place);
  }
  if (status.paused || !place->is_running) status.reason += Before(*place);
  return status;
}

}  // namespace lathe::engine
