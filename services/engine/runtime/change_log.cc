#include "services/engine/runtime/change_log.h"

#include <utility>
#include <variant>

namespace lathe::engine {

void ChangeLog::FollowTenant(const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  ++tenants_[tenant_id];
}

void ChangeLog::LeaveTenant(const std::string& tenant_id) {
  absl::MutexLock lock(&mu_);
  Leave(tenants_, tenant_id);
  if (!tenants_.contains(tenant_id)) changes_.tenants.erase(tenant_id);
}

void ChangeLog::FollowRun(const std::string& run_id) {
  absl::MutexLock lock(&mu_);
  ++runs_[run_id];
}

void ChangeLog::LeaveRun(const std::string& run_id) {
  absl::MutexLock lock(&mu_);
  Leave(runs_, run_id);
  if (!runs_.contains(run_id)) changes_.batches.erase(run_id);
}

void ChangeLog::Leave(Followers& followers, const std::string& id) {
  const auto found = followers.find(id);
  if (found != followers.end() && --found->second == 0) followers.erase(found);
}

void ChangeLog::AddRun(Runs& runs, const std::string& run_id) {
  if (runs.run_ids.size() < kMaxRuns) {
    runs.run_ids.insert(run_id);
  } else if (!runs.run_ids.contains(run_id)) {
    runs.has_more = true;
  }
}

ChangeLog::Tenant* ChangeLog::FindLocked(const std::string& tenant_id) {
  return tenants_.contains(tenant_id) ? &changes_.tenants[tenant_id] : nullptr;
}

void ChangeLog::OnWrite(const Write& write) {
  const auto* const model = std::get_if<PutModel>(&write);
  const auto* const checkpoint = std::get_if<PutCheckpoint>(&write);
  if (model == nullptr && checkpoint == nullptr) return;
  absl::MutexLock lock(&mu_);
  Tenant* const tenant =
      FindLocked(model != nullptr ? model->row.tenant_id : checkpoint->row.tenant_id);
  if (tenant == nullptr) return;
  if (model != nullptr) AddRun(tenant->runs, model->row.model_id);
  if (checkpoint != nullptr) AddRun(tenant->checkpoints, checkpoint->row.model_id);
}

void ChangeLog::OnPoints(int64_t journal_id, const std::vector<PointEntryPtr>& entries) {
  absl::MutexLock lock(&mu_);
  if (tenants_.empty() && runs_.empty()) return;
  for (const PointEntryPtr& entry : entries) {
    if (entry->run_id.starts_with(kMachinePrefix)) continue;  // not a run's
    if (Tenant* const tenant = FindLocked(entry->tenant_id)) AddRun(tenant->runs, entry->run_id);
    if (!runs_.contains(entry->run_id)) continue;
    std::vector<RunBatch>& batches = changes_.batches[entry->run_id];
    if (batches.empty() || batches.back().journal_id != journal_id) {
      batches.push_back({.journal_id = journal_id, .entries = {}});
    }
    batches.back().entries.push_back(entry);
  }
}

ChangeLog::Changes ChangeLog::Take() {
  absl::MutexLock lock(&mu_);
  return std::exchange(changes_, Changes());
}

}  // namespace lathe::engine
