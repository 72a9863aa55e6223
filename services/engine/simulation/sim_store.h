// The durable state of a run: the contents of a store, and a history of all it ever contained.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "services/engine/core/actions.h"
#include "services/engine/simulation/sim_result.h"
#include "services/engine/store/rows.h"
#include "services/engine/testing/counting_worker.h"

namespace lathe::engine::simulation {

// Commits that become durable together, with their bodies and results.
struct CommitGroup {
  std::vector<Commit> commits;
  std::vector<std::pair<std::string, SharedBody>> bodies;  // by body id
  std::map<std::string, SimResult> results;                // by result id
};

class SimStore {
 public:
  // A request as it was written. The oracle needs it after the store has removed it.
  struct History {
    RequestRow row;  // with its plan and outcome
    SharedBody body;
    std::optional<SimResult> result;
    int64_t order = 0;          // order of insertion
    int64_t handed_out_at = 0;  // first time that the result reached its client
  };

  // `is_fenced` false: a seeded bug, by which old terms may write.
  explicit SimStore(bool is_fenced) : is_fenced_(is_fenced) {}

  // Returns what a new leader reads at `now`. Deletes bodies that no live request names.
  StoredState TakeLeadership(int64_t now);
  // Returns false if the term is an old one; nothing is written then.
  bool Apply(int64_t term, const CommitGroup& group);

  void PutLargeBody(const std::string& body_id, SharedBody body) { bodies_[body_id] = body; }
  void DiscardLargeBody(const std::string& body_id);
  SharedBody FindBody(const std::string& body_id) const;
  // Returns nullptr if the request is not finished or retention removed it.
  const SimResult* FindResult(const std::string& request_id) const;
  // Returns nullptr if no row has this key any more.
  const RequestRow* FindByKey(const std::string& tenant_id, const std::string& owner_id,
                              OpClass op_class, int64_t seq_id) const;
  // Returns true if a limit of unfetched results removed the result.
  bool IsResultDropped(const std::string& request_id) const;
  // Counts the sessions, samplers and unfetched results of each tenant.
  std::map<std::string, TenantUsage> CountUsage() const;
  // Records that the result has reached its client.
  void RecordHandedOut(const std::string& request_id, int64_t now);

  int64_t term() const { return term_; }
  // Number of unfinished training requests of a model, or of all requests of a tenant.
  int64_t NumLive(const std::string& owner_or_tenant_id) const;
  const std::map<std::string, RequestRow>& requests() const { return requests_; }
  const std::map<std::string, ModelRow>& models() const { return models_; }
  const std::map<std::string, GroupRow>& groups() const { return groups_; }
  const std::map<std::string, SessionRow>& sessions() const { return sessions_; }
  const std::map<std::string, CheckpointRow>& checkpoints() const { return checkpoints_; }
  const std::map<std::string, SamplerRow>& samplers() const { return samplers_; }
  const std::vector<SnapshotRow>& snapshots() const { return snapshots_; }
  const std::map<std::string, VersionRow>& versions() const { return versions_; }
  // Returns true if a row names the directory as a checkpoint, a snapshot or a version.
  bool IsNamed(const std::string& dir) const;
  const std::map<std::string, SharedBody>& bodies() const { return bodies_; }
  const std::map<std::string, History>& history() const { return history_; }
  const std::map<std::string, SamplerRow>& samplers_ever() const { return samplers_ever_; }
  const std::map<std::string, ModelRow>& models_ever() const { return models_ever_; }

 private:
  using Key = std::tuple<std::string, OpClass, int64_t>;

  void Write(const PutSession& write) { sessions_[write.row.session_id] = write.row; }
  void Write(const TouchSession& write);
  void Write(const PutModel& write);
  void Write(const InsertRequest& write);
  void Write(const MarkDispatched& write);
  void Write(const CompleteRequest& write);
  void Write(const MarkDelivered& write);
  void Write(const PutCheckpoint& write) { checkpoints_[write.row.tinker_path] = write.row; }
  void Write(const PutSampler& write);
  void Write(const DeleteSampler& write) { samplers_.erase(write.sampling_session_id); }
  void Write(const PutBaseModel& write) { base_models_[write.row.name] = write.row; }
  void Write(const PutGroup& write) { groups_[write.row.group] = write.row; }
  void Write(const PutSnapshot& write);
  void Write(const DeleteSnapshot& write);
  void Write(const PutVersion& write) { versions_[write.row.version_id] = write.row; }
  void Write(const DeleteVersion& write) { versions_.erase(write.version_id); }
  void Write(const DropBody& write) { bodies_.erase(write.body_id); }
  void Write(const PurgeResults& write);
  void Write(const PutQuota& write) { quotas_[write.row.tenant_id] = write.row; }
  void Write(const DropResult& write);
  void Write(const AppendAudit&) {}
  void Write(const SetSessionProject&) {}
  void Write(const AddUsage&) {}
  void Write(const AppendPoints&) {}

  void CountLive(const RequestRow& row, int64_t sign);
  // Returns true if the request is needed to rebuild a live model from its oldest snapshot.
  bool IsInLog(const RequestRow& row) const;
  // Returns true if a new leader reads the row. `live`: ids of live sessions and their objects.
  bool IsNeeded(const RequestRow& row, const std::set<std::string>& live, int64_t now) const;
  void SweepBodies();

  const bool is_fenced_;
  const CommitGroup* group_ = nullptr;  // group that is being written
  int64_t term_ = 0;
  int64_t last_order_ = 0;
  std::map<std::string, SessionRow> sessions_;
  std::map<std::string, ModelRow> models_;
  std::map<std::string, RequestRow> requests_;
  std::map<Key, std::string> request_ids_;
  std::map<std::string, int64_t> num_live_;  // by owner and by tenant
  std::map<std::string, SimResult> results_;
  std::set<std::string> dropped_results_;  // ids of requests, of replaced ones too
  std::map<std::string, SharedBody> bodies_;
  std::map<std::string, CheckpointRow> checkpoints_;
  std::map<std::string, SamplerRow> samplers_;
  std::vector<SnapshotRow> snapshots_;  // oldest first
  std::map<std::string, VersionRow> versions_;
  std::map<std::string, BaseModelRow> base_models_;
  std::map<std::string, GroupRow> groups_;
  std::map<std::string, QuotaRow> quotas_;
  std::map<std::string, History> history_;
  std::map<std::string, SamplerRow> samplers_ever_;
  std::map<std::string, ModelRow> models_ever_;
};

}  // namespace lathe::engine::simulation
