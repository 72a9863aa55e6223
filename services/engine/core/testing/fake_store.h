// A store in memory: the rows after the applied commits, without bodies and results.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/engine/store/rows.h"

namespace lathe::engine {

class FakeStore {
 public:
  void Apply(const std::vector<Write>& writes);
  // Returns what a new leader reads.
  StoredState TakeLeadership();

  // Loses a row, like a damaged database.
  void LoseRequest(const std::string& request_id) { requests_.erase(request_id); }

  const std::map<std::string, RequestRow>& requests() const { return requests_; }
  const std::map<std::string, ModelRow>& models() const { return models_; }
  const std::map<std::string, SessionRow>& sessions() const { return sessions_; }
  const std::map<std::string, CheckpointRow>& checkpoints() const { return checkpoints_; }
  const std::map<std::string, SamplerRow>& samplers() const { return samplers_; }
  const std::map<std::string, SnapshotRow>& snapshots() const { return snapshots_; }
  const std::map<std::string, VersionRow>& versions() const { return versions_; }
  const std::map<std::string, BaseModelRow>& base_models() const { return base_models_; }
  const std::set<std::string>& dropped_bodies() const { return dropped_bodies_; }
  const std::vector<AuditRow>& audit() const { return audit_; }
  const std::vector<UsageRow>& usage() const { return usage_; }

 private:
  void Apply(const PutSession& write) { sessions_[write.row.session_id] = write.row; }
  void Apply(const TouchSession& write) {
    sessions_.at(write.session_id).heartbeat_at = write.heartbeat_at;
  }
  void Apply(const PutModel& write) { models_[write.row.model_id] = write.row; }
  void Apply(const InsertRequest& write);
  void Apply(const MarkDispatched& write);
  void Apply(const CompleteRequest& write);
  void Apply(const MarkDelivered& write);
  void Apply(const PutCheckpoint& write) { checkpoints_[write.row.tinker_path] = write.row; }
  void Apply(const PutSampler& write) { samplers_[write.row.sampling_session_id] = write.row; }
  void Apply(const DeleteSampler& write) { samplers_.erase(write.sampling_session_id); }
  void Apply(const PutBaseModel& write) { base_models_[write.row.name] = write.row; }
  void Apply(const PutGroup& write) { groups_[write.row.group] = write.row; }
  void Apply(const PutSnapshot& write) { snapshots_[write.row.snapshot_id] = write.row; }
  void Apply(const DeleteSnapshot& write) { snapshots_.erase(write.snapshot_id); }
  void Apply(const PutVersion& write) { versions_[write.row.version_id] = write.row; }
  void Apply(const DeleteVersion& write) { versions_.erase(write.version_id); }
  void Apply(const DropBody& write) { dropped_bodies_.insert(write.body_id); }
  void Apply(const PurgeResults& write);
  void Apply(const PutQuota& write) { quotas_[write.row.tenant_id] = write.row; }
  void Apply(const DropResult& write) { requests_.at(write.request_id).result_bytes = -1; }
  void Apply(const AppendAudit& write) { audit_.push_back(write.row); }
  void Apply(const SetSessionProject& write);
  void Apply(const AddUsage& write) { usage_.push_back(write.row); }
  void Apply(const AppendPoints&) {}

  int64_t term_ = 0;
  std::map<std::string, SessionRow> sessions_;
  std::map<std::string, ModelRow> models_;
  std::map<std::string, RequestRow> requests_;
  std::map<std::string, CheckpointRow> checkpoints_;
  std::map<std::string, SamplerRow> samplers_;
  std::map<std::string, SnapshotRow> snapshots_;
  std::map<std::string, VersionRow> versions_;
  std::map<std::string, BaseModelRow> base_models_;
  std::map<std::string, GroupRow> groups_;
  std::map<std::string, QuotaRow> quotas_;
  std::vector<AuditRow> audit_;
  std::vector<UsageRow> usage_;  // in order of arrival
  std::set<std::string> dropped_bodies_;
};

}  // namespace lathe::engine
