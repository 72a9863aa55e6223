#include "services/engine/core/testing/fake_store.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>

namespace lathe::engine {
namespace {

template <typename Row>
std::vector<Row> Values(const std::map<std::string, Row>& rows) {
  std::vector<Row> values;
  for (const auto& [key, row] : rows) values.push_back(row);
  return values;
}

auto KeyOf(const RequestRow& row) { return std::tie(row.owner_id, row.op_class, row.seq_id); }

bool IsLive(const RequestRow& row) { return row.done_at == 0; }

}  // namespace

void FakeStore::Apply(const std::vector<Write>& writes) {
  for (const Write& write : writes) {
    std::visit([this](const auto& one) { Apply(one); }, write);
  }
}

void FakeStore::Apply(const InsertRequest& write) {
  for (auto it = requests_.begin(); it != requests_.end(); ++it) {
    if (KeyOf(it->second) != KeyOf(write.row)) continue;
    if (IsLive(it->second)) throw std::logic_error("a live request would be replaced");
    requests_.erase(it);
    break;
  }
  requests_[write.row.request_id] = write.row;
}

void FakeStore::Apply(const MarkDispatched& write) {
  RequestRow& row = requests_.at(write.request_id);
  if (!IsLive(row)) return;
  row.state = RequestState::kDispatched;
  row.epoch = write.epoch;
  row.outcome = write.outcome;
}

void FakeStore::Apply(const CompleteRequest& write) {
  RequestRow& row = requests_.at(write.request_id);
  if (!IsLive(row)) throw std::logic_error("request " + write.request_id + " ends twice");
  row.state = write.state;
  row.done_at = write.done_at;
  row.outcome = write.outcome;
  row.result_bytes = write.result_bytes;
}

void FakeStore::Apply(const MarkDelivered& write) {
  const auto it = requests_.find(write.request_id);
  if (it != requests_.end()) it->second.delivered_at = write.delivered_at;
}

void FakeStore::Apply(const SetSessionProject& write) {
  const auto it = sessions_.find(write.session_id);
  if (it == sessions_.end() || it->second.tenant_id != write.tenant_id) return;
  it->second.project_id = write.project_id;
}

void FakeStore::Apply(const PurgeResults& write) {
  for (auto it = requests_.begin(); it != requests_.end();) {
    const RequestRow& row = it->second;
    const bool delivered = row.delivered_at > 0 && row.delivered_at < write.delivered_before;
    const bool purged = !IsLive(row) && (row.done_at < write.done_before || delivered);
    it = purged ? requests_.erase(it) : std::next(it);
  }
}

StoredState FakeStore::TakeLeadership() {
  StoredState state;
  state.term = ++term_;
  state.sessions = Values(sessions_);
  state.models = Values(models_);
  state.requests = Values(requests_);
  for (const auto& [path, row] : checkpoints_) {
    if (row.state == CheckpointState::kComplete) state.checkpoints.push_back(row);
  }
  state.samplers = Values(samplers_);
  state.snapshots = Values(snapshots_);
  std::stable_sort(
      state.snapshots.begin(), state.snapshots.end(),
      [](const SnapshotRow& a, const SnapshotRow& b) { return a.created_at < b.created_at; });
  state.versions = Values(versions_);
  state.base_models = Values(base_models_);
  state.groups = Values(groups_);
  state.quotas = Values(quotas_);
  return state;
}

}  // namespace lathe::engine
