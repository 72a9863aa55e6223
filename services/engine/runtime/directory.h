// What rpc/ needs to know of live objects without asking the core: which base model a model or a
// sampler runs on, its bounds, and the state of groups.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

// Mirrors durable rows; fed by the thread that commits. Thread-safe.
class Directory {
 public:
  void Load(const StoredState& state);
  // A write that is durable now.
  void Apply(const Write& write);

  // Base models of the groups there are: not what was served before by the same store.
  std::vector<BaseModelRow> ServedModels();
  std::optional<BaseModelRow> FindBaseModel(const std::string& name);
  // The live model's row, if it is the tenant's.
  std::optional<ModelRow> FindModel(const std::string& tenant_id, const std::string& model_id);
  std::optional<SamplerRow> FindSampler(const std::string& tenant_id,
                                        const std::string& sampling_session_id);
  std::vector<ModelRow> LiveModels();
  std::vector<GroupRow> Groups();
  struct Sizes {
    int64_t num_sessions = 0;  // that have not ended
    int64_t num_models = 0;
    int64_t num_parked_models = 0;  // of them
    int64_t num_samplers = 0;
  };
  Sizes CountLive();
  // Without limits when none was set.
  QuotaRow QuotaOf(const std::string& tenant_id);

 private:
  void ApplyLocked(const PutModel& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyLocked(const PutSession& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::set<std::string> sessions_ ABSL_GUARDED_BY(mu_);  // that have not ended
  std::map<std::string, BaseModelRow> base_models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, ModelRow> models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, SamplerRow> samplers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, GroupRow> groups_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, QuotaRow> quotas_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
