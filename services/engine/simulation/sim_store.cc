#include "services/engine/simulation/sim_store.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <variant>

namespace lathe::engine::simulation {
namespace {

constexpr int64_t kDay = int64_t{24} * 3600 * 1'000'000'000;

bool IsLive(const RequestRow& row) { return row.done_at == 0; }

// Sorts rows as the real stores do for a new leader.
template <typename Row>
void SortByCreation(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.created_at < b.created_at; });
}

}  // namespace

bool SimStore::Apply(int64_t term, const CommitGroup& group) {
  if (term != term_ && is_fenced_) return false;
  group_ = &group;
  for (const Commit& commit : group.commits) {
    for (const engine::Write& write : commit.writes) {
      std::visit([this](const auto& one) { Write(one); }, write);
    }
  }
  group_ = nullptr;
  return true;
}

void SimStore::Write(const TouchSession& write) {
  const auto it = sessions_.find(write.session_id);
  if (it != sessions_.end()) it->second.heartbeat_at = write.heartbeat_at;
}

void SimStore::Write(const PutModel& write) {
  models_[write.row.model_id] = write.row;
  models_ever_[write.row.model_id] = write.row;
}

void SimStore::Write(const PutSampler& write) {
  samplers_[write.row.sampling_session_id] = write.row;
  samplers_ever_[write.row.sampling_session_id] = write.row;
}

void SimStore::Write(const InsertRequest& write) {
  const RequestRow& row = write.row;
  const Key key(row.owner_id, row.op_class, row.seq_id);
  const auto known = request_ids_.find(key);
  if (known != request_ids_.end()) {
    const auto old = requests_.find(known->second);
    if (old != requests_.end()) {
      if (IsLive(old->second)) throw std::logic_error("a live request would be replaced");
      results_.erase(old->first);
      requests_.erase(old);
    }
  }
  SharedBody body;
  if (!row.body_id.empty()) {
    for (const auto& [id, one] : group_->bodies) {
      if (id == row.body_id) body = bodies_[id] = one;
    }
    if (body == nullptr) body = FindBody(row.body_id);  // a large body was stored before
    if (body == nullptr) throw std::logic_error(row.request_id + " commits without its body");
  }
  request_ids_[key] = row.request_id;
  if (IsLive(row)) CountLive(row, +1);
  requests_[row.request_id] = row;
  history_[row.request_id] = {row, std::move(body), std::nullopt, ++last_order_, 0};
}

void SimStore::CountLive(const RequestRow& row, int64_t sign) {
  num_live_[row.tenant_id] += sign;
  if (row.op_class == OpClass::kTrain) num_live_[row.owner_id] += sign;
}

bool SimStore::IsNamed(const std::string& dir) const {
  const auto has_dir = [&](const auto& entry) { return entry.second.dir == dir; };
  return std::any_of(checkpoints_.begin(), checkpoints_.end(), has_dir) ||
         std::any_of(versions_.begin(), versions_.end(), has_dir) ||
         std::any_of(snapshots_.begin(), snapshots_.end(),
                     [&](const SnapshotRow& row) { return row.snapshot_id == dir; });
}

int64_t SimStore::NumLive(const std::string& owner_or_tenant_id) const {
  const auto it = num_live_.find(owner_or_tenant_id);
  return it == num_live_.end() ? 0 : it->second;
}

void SimStore::Write(const MarkDispatched& write) {
  const auto it = requests_.find(write.request_id);
  if (it == requests_.end() || !IsLive(it->second)) return;
  it->second.state = RequestState::kDispatched;
  it->second.epoch = write.epoch;
  it->second.outcome = write.outcome;
}

void SimStore::Write(const CompleteRequest& write) {
  const auto result = group_->results.find(write.result_id);
  if (result == group_->results.end()) {
    throw std::logic_error(write.request_id + " completes without its result");
  }
  RequestRow& row = requests_.at(write.request_id);
  if (!IsLive(row)) throw std::logic_error(write.request_id + " ends twice");
  CountLive(row, -1);
  row.state = write.state;
  row.done_at = write.done_at;
  row.outcome = write.outcome;
  row.result_bytes = write.result_bytes;
  results_[write.request_id] = result->second;
  History& history = history_.at(write.request_id);
  history.row.state = write.state;
  history.row.done_at = write.done_at;
  history.row.outcome = write.outcome;
  history.result = result->second;
}

void SimStore::Write(const MarkDelivered& write) {
  const auto it = requests_.find(write.request_id);
  if (it != requests_.end() && it->second.delivered_at == 0) {
    it->second.delivered_at = write.delivered_at;
  }
}

void SimStore::Write(const DropResult& write) {
  const auto it = requests_.find(write.request_id);
  if (it == requests_.end()) return;
  results_.erase(write.request_id);
  it->second.result_bytes = -1;
  dropped_results_.insert(write.request_id);
}

bool SimStore::IsResultDropped(const std::string& request_id) const {
  return dropped_results_.count(request_id) > 0;
}

std::map<std::string, TenantUsage> SimStore::CountUsage() const {
  std::map<std::string, TenantUsage> usage;
  for (const auto& [id, row] : sessions_) {
    if (row.state != SessionState::kEnded) ++usage[row.tenant_id].sessions;
  }
  for (const auto& [id, row] : samplers_) ++usage[row.tenant_id].samplers;
  for (const auto& [id, row] : requests_) {
    if (row.delivered_at > 0 || results_.count(id) == 0) continue;
    ++usage[row.tenant_id].unfetched_results;
    usage[row.tenant_id].unfetched_bytes += row.result_bytes;
  }
  return usage;
}

void SimStore::Write(const PurgeResults& write) {
  for (auto it = requests_.begin(); it != requests_.end();) {
    const RequestRow& row = it->second;
    const bool delivered = row.delivered_at > 0 && row.delivered_at < write.delivered_before;
    if (!IsLive(row) && (row.done_at < write.done_before || delivered)) {
      results_.erase(it->first);
      it->second.result_bytes = 0;
    }
    if (IsLive(row) || row.done_at >= write.rows_before || IsInLog(row)) {
      ++it;
      continue;
    }
    request_ids_.erase(Key(row.owner_id, row.op_class, row.seq_id));
    it = requests_.erase(it);
  }
}

void SimStore::Write(const PutSnapshot& write) {
  std::erase_if(snapshots_,
                [&](const SnapshotRow& row) { return row.snapshot_id == write.row.snapshot_id; });
  snapshots_.push_back(write.row);
}

void SimStore::Write(const DeleteSnapshot& write) {
  std::erase_if(snapshots_,
                [&](const SnapshotRow& row) { return row.snapshot_id == write.snapshot_id; });
}

bool SimStore::IsInLog(const RequestRow& row) const {
  if (row.op_class != OpClass::kTrain) return false;
  const auto model = models_.find(row.owner_id);
  return model != models_.end() && row.seq_id > model->second.log_from_seq &&
         model->second.state <= ModelState::kReady;
}

bool SimStore::IsNeeded(const RequestRow& row, const std::set<std::string>& live,
                        int64_t now) const {
  const bool has_result = results_.count(row.request_id) > 0;
  if (IsLive(row) || (row.delivered_at == 0 && has_result)) return true;
  if (live.count(row.owner_id) == 0) return false;
  if (row.op_class == OpClass::kModel || row.kind == OperationKind::kLoadWeights) return true;
  const bool is_recent = row.done_at > now - kDay && row.result_bytes >= 0;
  if (row.state == RequestState::kFailed && is_recent) return true;
  if (row.op_class != OpClass::kTrain) return has_result;
  const ModelRow& model = models_.at(row.owner_id);
  return row.seq_id > model.closed_seq || row.seq_id > model.gradient_from_seq ||
         row.seq_id > model.log_from_seq;
}

void SimStore::SweepBodies() {
  std::set<std::string> needed;
  for (const auto& [id, row] : requests_) {
    const bool is_gradient =
        row.state == RequestState::kDone && row.kind == OperationKind::kForwardBackward;
    if (IsLive(row) || (is_gradient && IsInLog(row))) needed.insert(row.body_id);
  }
  std::erase_if(bodies_, [&](const auto& body) { return needed.count(body.first) == 0; });
}

StoredState SimStore::TakeLeadership(int64_t now) {
  SweepBodies();
  StoredState state;
  state.term = ++term_;
  std::set<std::string> live;  // live sessions and their objects
  for (const auto& [id, row] : models_) {
    if (row.state <= ModelState::kReady) live.insert(row.session_id);
  }
  for (const auto& [id, row] : sessions_) {
    if (row.state != SessionState::kEnded) live.insert(id);
    if (live.count(id) > 0 || row.state != SessionState::kEnded || row.heartbeat_at > now - kDay) {
      state.sessions.push_back(row);
    }
  }
  for (const auto& [id, row] : models_) {
    if (live.count(row.session_id) == 0) continue;
    state.models.push_back(row);
    live.insert(id);
  }
  for (const SnapshotRow& row : snapshots_) {
    if (live.count(row.model_id) > 0) state.snapshots.push_back(row);
  }
  for (const auto& [id, row] : versions_) {
    if (live.count(row.model_id) > 0) state.versions.push_back(row);
  }
  for (const auto& [id, row] : samplers_) {
    if (live.count(row.session_id) == 0) continue;
    state.samplers.push_back(row);
    live.insert(id);
  }
  for (const auto& [id, row] : requests_) {
    if (IsNeeded(row, live, now)) state.requests.push_back(row);
  }
  // Orders rows by insertion: rows of the same time keep their order.
  std::sort(state.requests.begin(), state.requests.end(),
            [this](const RequestRow& a, const RequestRow& b) {
              return history_.at(a.request_id).order < history_.at(b.request_id).order;
            });
  for (const auto& [path, row] : checkpoints_) {
    if (row.state == CheckpointState::kComplete) state.checkpoints.push_back(row);
  }
  for (const auto& [name, row] : base_models_) state.base_models.push_back(row);
  for (const auto& [name, row] : groups_) state.groups.push_back(row);
  for (const auto& [id, row] : quotas_) state.quotas.push_back(row);
  SortByCreation(state.sessions);
  SortByCreation(state.models);
  SortByCreation(state.samplers);
  SortByCreation(state.checkpoints);
  return state;
}

void SimStore::DiscardLargeBody(const std::string& body_id) { bodies_.erase(body_id); }

SharedBody SimStore::FindBody(const std::string& body_id) const {
  const auto it = bodies_.find(body_id);
  return it == bodies_.end() ? nullptr : it->second;
}

const SimResult* SimStore::FindResult(const std::string& request_id) const {
  const auto it = results_.find(request_id);
  return it == results_.end() ? nullptr : &it->second;
}

const RequestRow* SimStore::FindByKey(const std::string& tenant_id, const std::string& owner_id,
                                      OpClass op_class, int64_t seq_id) const {
  const auto id = request_ids_.find(Key(owner_id, op_class, seq_id));
  if (id == request_ids_.end()) return nullptr;
  const RequestRow& row = requests_.at(id->second);
  return row.tenant_id == tenant_id ? &row : nullptr;
}

void SimStore::RecordHandedOut(const std::string& request_id, int64_t now) {
  History& history = history_.at(request_id);
  if (history.handed_out_at == 0) history.handed_out_at = now;
}

}  // namespace lathe::engine::simulation
