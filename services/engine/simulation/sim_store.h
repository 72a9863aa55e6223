// The durable state of a run: what a store keeps, and beside it all that it ever kept.
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

namespace lathe::engine::simulation {

// Some commits that become durable together, with the bytes that travel beside them.
struct CommitGroup {
  std::vector<Commit> commits;
  std::vector<std::pair<std::string, SharedBody>> bodies;  // by body id
  std::map<std::string, SimResult> results;                // by result id
};

class SimStore {
 public:
  // A request as it was written, kept for the oracle when the store has long forgotten it.
  struct History {
    RequestRow row;  // with its plan and how it ended
    SharedBody body;
    std::optional<SimResult> result;
    int64_t order = 0;          // of insertion
    int64_t handed_out_at = 0;  // first time that an engine gave the result to anybody
  };

  // `is_fenced` false: a seeded bug, old terms may write.
  explicit SimStore(bool is_fenced) : is_fenced_(is_fenced) {}

  // What a new leader reads at `now`; bodies that no live request names are swept.
  StoredState TakeLeadership(int64_t now);
  // False: the term is an old one and nothing was written.
  bool Apply(int64_t term, const CommitGroup& group);

  void PutLargeBody(const std::string& body_id, SharedBody body) { bodies_[body_id] = body; }
  void DiscardLargeBody(const std::string& body_id);
  SharedBody FindBody(const std::string& body_id) const;
  // nullptr: not finished, or retention removed it.
  const SimResult* FindResult(const std::string& request_id) const;
  // nullptr: nothing has this key any more.
  const RequestRow* FindByKey(const std::string& tenant_id, const std::string& owner_id,
                              OpClass op_class, int64_t seq_id) const;
  // The result left for a client.
  void NoteHandedOut(const std::string& request_id, int64_t now);

  int64_t term() const { return term_; }
  // Unfinished requests of a model's training, or of a tenant.
  int64_t NumLive(const std::string& owner_or_tenant_id) const;
  const std::map<std::string, RequestRow>& requests() const { return requests_; }
  const std::map<std::string, ModelRow>& models() const { return models_; }
  const std::map<std::string, GroupRow>& groups() const { return groups_; }
  const std::map<std::string, SessionRow>& sessions() const { return sessions_; }
  const std::map<std::string, CheckpointRow>& checkpoints() const { return checkpoints_; }
  const std::map<std::string, SamplerRow>& samplers() const { return samplers_; }
  const std::vector<SnapshotRow>& snapshots() const { return snapshots_; }
  const std::map<std::string, VersionRow>& versions() const { return versions_; }
  // Whether a row says that these files are a checkpoint, a snapshot or a version.
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
  void Write(const AppendAudit&) {}
  void Write(const SetSessionProject&) {}
  void Write(const AddUsage&) {}

  void CountLive(const RequestRow& row, int64_t sign);
  // Rebuilds a model that lives, with its oldest snapshot.
  bool IsInLog(const RequestRow& row) const;
  // A new leader reads it, of what such a one as `live` owns.
  bool IsNeeded(const RequestRow& row, const std::set<std::string>& live, int64_t now) const;
  void SweepBodies();

  const bool is_fenced_;
  const CommitGroup* group_ = nullptr;  // that is being written
  int64_t term_ = 0;
  int64_t last_order_ = 0;
  std::map<std::string, SessionRow> sessions_;
  std::map<std::string, ModelRow> models_;
  std::map<std::string, RequestRow> requests_;
  std::map<Key, std::string> request_ids_;
  std::map<std::string, int64_t> num_live_;  // by owner and by tenant
  std::map<std::string, SimResult> results_;
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
