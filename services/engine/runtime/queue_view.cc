#include "services/engine/runtime/queue_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lathe::engine {
namespace {

constexpr int64_t kMaxAge = 1'000'000'000;

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
  absl::MutexLock lock(&mu_);
  Owner& owner = owners_[row.owner_id];
  owner.tenant = row.tenant_id;
  owner.is_model = row.op_class == OpClass::kTrain || row.op_class == OpClass::kUnload;
  owner.lane.second = row.op_class == OpClass::kSample;
  const Order order = ++last_order_;
  const int64_t tokens = owner.lane.second ? 0 : row.tokens;
  owner.items[order] = {
      .kind = row.kind, .seq = row.seq_id, .tokens = tokens, .cost = std::max<int64_t>(1, tokens)};
  keys_[row.request_id] = {row.owner_id, order};
}

QueueView::Item* QueueView::FindLocked(const std::string& request_id, const Owner** owner) {
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return nullptr;
  Owner& found = owners_.at(key->second.owner);
  if (owner != nullptr) *owner = &found;
  return &found.items.at(key->second.order);
}

void QueueView::SetGroup(const std::string& request_id, const std::string& group) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key != keys_.end()) owners_.at(key->second.owner).lane.first = group;
}

void QueueView::OnDispatched(const std::string& request_id, const std::string& group, int64_t now) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return;
  Owner& owner = owners_.at(key->second.owner);
  owner.lane.first = group;
  Item& item = owner.items.at(key->second.order);
  if (item.dispatched_at == 0) meters_[owner.lane].Begin(now);
  item.dispatched_at = now;
}

void QueueView::OnExecuted(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  const Owner* owner = nullptr;
  Item* const item = FindLocked(request_id, &owner);
  if (item == nullptr || item->dispatched_at == 0 || item->is_executed) return;
  item->is_executed = true;
  meters_[owner->lane].End(now, item->cost);
}

void QueueView::OnCompleted(const std::string& request_id, int64_t now) {
  absl::MutexLock lock(&mu_);
  const auto key = keys_.find(request_id);
  if (key == keys_.end()) return;
  const auto owner = owners_.find(key->second.owner);
  const auto item = owner->second.items.find(key->second.order);
  const bool was_cut = item->second.dispatched_at > 0 && !item->second.is_executed;
  if (was_cut) meters_[owner->second.lane].End(now, 0);
  owner->second.items.erase(item);
  if (owner->second.items.empty()) owners_.erase(owner);
  keys_.erase(key);
}

void QueueView::SetModelState(const NotifyModelState& state) {
  absl::MutexLock lock(&mu_);
  if (state.is_away || state.missing_seq > 0 || !state.reason.empty()) {
    model_states_[state.model_id] = state;
  } else {
    model_states_.erase(state.model_id);
  }
}

void QueueView::FillQueue(const Owner& owner, Queue& queue, Lane& lane) {
  queue.tenant = owner.tenant;
  queue.lane = owner.lane;
  queue.is_model = owner.is_model;
  queue.entries.reserve(owner.items.size());
  int64_t last_barrier = -1;
  for (const auto& [order, item] : owner.items) {
    const bool is_barrier = owner.is_model && TraitsOf(item.kind).is_barrier;
    queue.entries.push_back({order, item, queue.waiting, last_barrier});
    if (is_barrier) last_barrier = static_cast<int64_t>(queue.entries.size()) - 1;
    if (item.dispatched_at > 0) {
      if (!item.is_executed) lane.running[order] = item.cost;
      continue;
    }
    queue.waiting.Add({1, item.tokens, item.cost}, 1, 1);
  }
}

std::shared_ptr<const QueueView::Snapshot> QueueView::SnapshotLocked(int64_t now) {
  const bool is_new =
      snapshot_ != nullptr && snapshot_->taken_at <= now && now - snapshot_->taken_at < kMaxAge;
  if (is_new) return snapshot_;
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken_at = now;
  for (const auto& [id, owner] : owners_) {
    Queue& queue = snapshot->queues[id];
    Lane& lane = snapshot->lanes[owner.lane];
    FillQueue(owner, queue, lane);
    if (queue.waiting.requests == 0) continue;
    lane.tenants[owner.tenant].Add(queue.waiting, 1, 1);
    lane.queues[owner.tenant].push_back(&queue);
  }
  for (auto& [id, lane] : snapshot->lanes) {
    int64_t sum = 0;
    for (auto& [order, cost] : lane.running) cost = sum += cost;
    const auto meter = meters_.find(id);
    if (meter != meters_.end()) lane.rate = meter->second.Rate();
  }
  snapshot_ = snapshot;
  return snapshot_;
}

QueueView::Waiting QueueView::Before(const Lane& lane, const Queue& queue, Waiting own,
                                     int64_t cost) {
  Waiting before = own;
  const auto siblings = lane.queues.find(queue.tenant);
  if (siblings == lane.queues.end()) return before;
  // Turns: each round serves one request of every queue of the tenant.
  for (const Queue* const other : siblings->second) {
    if (other == &queue) continue;
    const int64_t turns = std::min(other->waiting.requests, own.requests + 1);
    before.Add(other->waiting, turns, other->waiting.requests);
  }
  // Shares: every other tenant is served as much as this tenant is up to that point.
  const int64_t share = before.cost + cost;
  for (const auto& [tenant, waiting] : lane.tenants) {
    if (tenant == queue.tenant) continue;
    before.Add(waiting, std::min(waiting.cost, share), waiting.cost);
  }
  return before;
}

QueuePlace QueueView::PlaceIn(const Snapshot& snapshot, const Queue& queue, size_t index,
                              int64_t now) {
  const Entry& entry = queue.entries[index];
  const Lane& lane = snapshot.lanes.at(queue.lane);
  QueuePlace place;
  place.is_running = entry.item.dispatched_at > 0;
  int64_t cost = entry.item.cost;
  int64_t elapsed = 0;
  if (place.is_running) {
    const auto running = lane.running.find(entry.order);
    if (running != lane.running.end()) cost = running->second;
    elapsed = now - entry.item.dispatched_at;
  } else {
    const Waiting before = Before(lane, queue, entry.before, cost);
    place.requests_before = before.requests;
    place.tokens_before = before.tokens;
    cost += before.cost + (lane.running.empty() ? 0 : lane.running.rbegin()->second);
    const bool is_barrier = queue.is_model && TraitsOf(entry.item.kind).is_barrier;
    const int64_t after = is_barrier ? static_cast<int64_t>(index) - 1 : entry.last_barrier;
    if (after >= 0) {
      place.after_kind = queue.entries[static_cast<size_t>(after)].item.kind;
      place.after_seq = queue.is_model ? queue.entries[static_cast<size_t>(after)].item.seq : 0;
    }
  }
  if (lane.rate > 0) {
    place.seconds =
        std::max(1.0, static_cast<double>(cost) / lane.rate - static_cast<double>(elapsed) / 1e9);
  }
  return place;
}

std::optional<QueuePlace> QueueView::PlaceOf(const std::string& request_id, int64_t now) {
  std::shared_ptr<const Snapshot> snapshot;
  Key key;
  int64_t seq = 0;
  std::optional<NotifyModelState> state;
  {
    absl::MutexLock lock(&mu_);
    const Item* const item = FindLocked(request_id);
    if (item == nullptr) return std::nullopt;
    seq = item->seq;
    key = keys_.at(request_id);
    snapshot = SnapshotLocked(now);
    const auto found = model_states_.find(key.owner);
    if (found != model_states_.end()) state = found->second;
  }
  QueuePlace place;
  const auto queue = snapshot->queues.find(key.owner);
  if (queue != snapshot->queues.end()) {
    const std::vector<Entry>& entries = queue->second.entries;
    const auto entry =
        std::lower_bound(entries.begin(), entries.end(), key.order,
                         [](const Entry& e, Order order) { return e.order < order; });
    const bool is_there = entry != entries.end() && entry->order == key.order;
    if (is_there) {
      place = PlaceIn(*snapshot, queue->second, static_cast<size_t>(entry - entries.begin()), now);
    }
  }
  if (!state) return place;
  place.is_model_away = state->is_away;
  place.model_reason = state->reason;
  if (state->is_away) place.seconds = 0;
  if (!place.is_running && state->missing_seq > 0 && state->missing_seq < seq) {
    place.missing_seq = state->missing_seq;
    place.gap_closes_in = std::max<int64_t>(0, state->gap_closes_at - now);
  }
  return place;
}

QueueStatus DescribeQueue(const QueueStatus& group, const std::optional<QueuePlace>& place) {
  QueueStatus status = group;
  if (!place) return status;
  const bool is_held_up = !place->model_reason.empty() && !place->is_running;
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
  if (!status.paused && place->missing_seq == 0 && place->seconds > 0) {
    absl::StrAppend(&status.reason, "; about ", std::lround(place->seconds), " s");
  }
  return status;
}

}  // namespace lathe::engine
