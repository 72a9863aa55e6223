// A view of live objects that lets rpc/ avoid a call to the core: base models and bounds of models
// and samplers, states of groups.
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

// Mirrors durable rows. The thread that commits feeds it. Thread-safe.
class Directory {
 public:
  void Load(const StoredState& state);
  // Applies a write that is now durable.
  void Apply(const Write& write);

  // Returns the base models of the current groups. Models that only earlier groups of the same
  // store served are left out.
  std::vector<BaseModelRow> ServedModels();
  std::optional<BaseModelRow> FindBaseModel(const std::string& name);
  // Returns the row of the live model if it belongs to the tenant.
  std::optional<ModelRow> FindModel(const std::string& tenant_id, const std::string& model_id);
  std::optional<SamplerRow> FindSampler(const std::string& tenant_id,
                                        const std::string& sampling_session_id);
  std::vector<ModelRow> LiveModels();
  // Returns the live models of a group, of all tenants.
  std::vector<ModelRow> LiveModelsAt(const std::string& group);
  // Returns up to `max` live models of the tenant, in the order of their ids.
  std::vector<ModelRow> LiveModelsOf(const std::string& tenant_id, size_t max);
  int64_t CountLiveModelsOf(const std::string& tenant_id);
  std::vector<GroupRow> Groups();
  struct Sizes {
    int64_t num_sessions = 0;  // sessions that have not ended
    int64_t num_models = 0;
    int64_t num_offloaded_models = 0;  // models among them that are offloaded
    int64_t num_samplers = 0;
  };
  Sizes CountLive();
  // Returns a row without limits when the tenant has no quota.
  QuotaRow QuotaOf(const std::string& tenant_id);

 private:
  void ApplyLocked(const PutModel& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ApplyLocked(const PutSession& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ids of models by a value that their rows have in common. No set is empty.
  using IdsByName = std::map<std::string, std::set<std::string>>;
  std::vector<ModelRow> RowsLocked(const IdsByName& index, const std::string& name,
                                   size_t max) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::set<std::string> sessions_ ABSL_GUARDED_BY(mu_);  // sessions that have not ended
  std::map<std::string, BaseModelRow> base_models_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, ModelRow> models_ ABSL_GUARDED_BY(mu_);
  IdsByName models_of_tenant_ ABSL_GUARDED_BY(mu_);
  IdsByName models_at_group_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, SamplerRow> samplers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, GroupRow> groups_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, QuotaRow> quotas_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lathe::engine
