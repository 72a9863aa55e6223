#include "services/engine/runtime/directory.h"

#include <algorithm>
#include <variant>

namespace lathe::engine {
namespace {

bool IsLive(const ModelRow& row) {
  return row.state == ModelState::kCreating || row.state == ModelState::kReady;
}

template <typename Row>
std::optional<Row> FindIn(const std::map<std::string, Row>& rows, const std::string& id) {
  const auto found = rows.find(id);
  if (found == rows.end()) return std::nullopt;
  return found->second;
}

template <typename Row>
std::vector<Row> Values(const std::map<std::string, Row>& rows) {
  std::vector<Row> values;
  for (const auto& [id, row] : rows) values.push_back(row);
  return values;
}

template <typename Index>
void Remove(Index& index, const std::string& name, const std::string& id) {
  const auto found = index.find(name);
  if (found == index.end()) return;
  found->second.erase(id);
  if (found->second.empty()) index.erase(found);
}

}  // namespace

void Directory::Load(const StoredState& state) {
  absl::MutexLock lock(&mu_);
  for (const SessionRow& row : state.sessions) ApplyLocked(PutSession{row});
  for (const BaseModelRow& row : state.base_models) base_models_[row.name] = row;
  for (const ModelRow& row : state.models) ApplyLocked(PutModel{row});
  for (const SamplerRow& row : state.samplers) samplers_[row.sampling_session_id] = row;
  for (const GroupRow& row : state.groups) groups_[row.group] = row;
  for (const QuotaRow& row : state.quotas) quotas_[row.tenant_id] = row;
}

void Directory::Apply(const Write& write) {
  absl::MutexLock lock(&mu_);
  if (const auto* model = std::get_if<PutModel>(&write)) {
    ApplyLocked(*model);
  } else if (const auto* sampler = std::get_if<PutSampler>(&write)) {
    samplers_[sampler->row.sampling_session_id] = sampler->row;
  } else if (const auto* dropped = std::get_if<DeleteSampler>(&write)) {
    samplers_.erase(dropped->sampling_session_id);
  } else if (const auto* base = std::get_if<PutBaseModel>(&write)) {
    base_models_[base->row.name] = base->row;
  } else if (const auto* group = std::get_if<PutGroup>(&write)) {
    groups_[group->row.group] = group->row;
  } else if (const auto* quota = std::get_if<PutQuota>(&write)) {
    quotas_[quota->row.tenant_id] = quota->row;
  } else if (const auto* session = std::get_if<PutSession>(&write)) {
    ApplyLocked(*session);
  }
}

void Directory::ApplyLocked(const PutSession& write) {
  if (write.row.state == SessionState::kEnded) {
    sessions_.erase(write.row.session_id);
  } else {
    sessions_.insert(write.row.session_id);
  }
}

Directory::Sizes Directory::CountLive() {
  absl::MutexLock lock(&mu_);
  const auto num_offloaded = std::count_if(
      models_.begin(), models_.end(), [](const auto& entry) { return entry.second.is_offloaded; });
  return {.num_sessions = static_cast<int64_t>(sessions_.size()),
          .num_models = static_cast<int64_t>(models_.size()),
          .num_offloaded_models = static_cast<int64_t>(num_offloaded),
          .num_samplers = static_cast<int64_t>(samplers_.size())};
}

void Directory::ApplyLocked(const PutModel& write) {
  const ModelRow& row = write.row;
  const auto known = models_.find(row.model_id);
  const bool moves = known == models_.end() || known->second.group != row.group;
  if (known != models_.end() && (moves || !IsLive(row))) {
    Remove(models_at_group_, known->second.group, row.model_id);
  }
  if (!IsLive(row)) {
    Remove(models_of_tenant_, row.tenant_id, row.model_id);
    models_.erase(row.model_id);
    return;
  }
  if (known == models_.end()) models_of_tenant_[row.tenant_id].insert(row.model_id);
  if (moves) models_at_group_[row.group].insert(row.model_id);
  models_[row.model_id] = row;
}

std::vector<BaseModelRow> Directory::ServedModels() {
  absl::MutexLock lock(&mu_);
  std::vector<BaseModelRow> served;
  for (const auto& [name, row] : base_models_) {
    const bool has_group = std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
      return group.second.base_model == name;
    });
    if (has_group) served.push_back(row);
  }
  return served;
}

std::optional<BaseModelRow> Directory::FindBaseModel(const std::string& name) {
  absl::MutexLock lock(&mu_);
  return FindIn(base_models_, name);
}

std::optional<ModelRow> Directory::FindModel(const std::string& tenant_id,
                                             const std::string& model_id) {
  absl::MutexLock lock(&mu_);
  std::optional<ModelRow> row = FindIn(models_, model_id);
  return row && row->tenant_id == tenant_id ? row : std::nullopt;
}

std::optional<SamplerRow> Directory::FindSampler(const std::string& tenant_id,
                                                 const std::string& sampling_session_id) {
  absl::MutexLock lock(&mu_);
  std::optional<SamplerRow> row = FindIn(samplers_, sampling_session_id);
  return row && row->tenant_id == tenant_id ? row : std::nullopt;
}

std::vector<ModelRow> Directory::LiveModels() {
  absl::MutexLock lock(&mu_);
  return Values(models_);
}

std::vector<ModelRow> Directory::RowsLocked(const IdsByName& index, const std::string& name,
                                            size_t max) const {
  std::vector<ModelRow> rows;
  const auto ids = index.find(name);
  if (ids == index.end()) return rows;
  for (const std::string& id : ids->second) {
    if (rows.size() == max) break;
    rows.push_back(models_.at(id));
  }
  return rows;
}

std::vector<ModelRow> Directory::LiveModelsAt(const std::string& group) {
  absl::MutexLock lock(&mu_);
  return RowsLocked(models_at_group_, group, models_.size());
}

std::vector<ModelRow> Directory::LiveModelsOf(const std::string& tenant_id, size_t max) {
  absl::MutexLock lock(&mu_);
  return RowsLocked(models_of_tenant_, tenant_id, max);
}

int64_t Directory::CountLiveModelsOf(const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  const auto ids = models_of_tenant_.find(tenant_id);
  return ids == models_of_tenant_.end() ? 0 : static_cast<int64_t>(ids->second.size());
}

QuotaRow Directory::QuotaOf(const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  QuotaRow none;
  none.tenant_id = tenant_id;
  return FindIn(quotas_, tenant_id).value_or(none);
}

std::vector<GroupRow> Directory::Groups() {
  absl::MutexLock lock(&mu_);
  return Values(groups_);
}

}  // namespace lathe::engine
