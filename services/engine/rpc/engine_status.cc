#include "services/engine/rpc/admin_service.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libs/common/version.h"

namespace lathe::engine {
namespace {

bool IsUnsaved(const ModelRow& row) { return row.applied_seq > row.saved_seq; }

}  // namespace

const char* StateName(const ModelRow& row) {
  if (row.is_offloaded) return "offloaded";
  return row.state == ModelState::kCreating ? "creating" : "ready";
}

std::map<std::string, v1::GroupStatus> DescribeGroups(
    Runtime& runtime, const std::vector<v1::GroupStatus>& attached_groups) {
  std::map<std::string, v1::GroupStatus> groups;
  const std::map<std::string, QueueStatus> paused = runtime.hub().PausedGroups();
  for (const GroupRow& row : runtime.directory().Groups()) {
    if (row.base_model.empty()) continue;  // removed
    v1::GroupStatus& group = groups[row.group];
    group.set_state("lost");
    group.set_base_model(row.base_model);
    group.set_epoch(row.epoch);
    const auto why = paused.find(row.group);
    if (why != paused.end()) group.set_reason(why->second.reason);
  }
  for (const v1::GroupStatus& attached : attached_groups) {
    groups[attached.group()].MergeFrom(attached);
    groups[attached.group()].clear_reason();  // `state` and `progress` say it
  }

  for (const auto& [name, trouble] : runtime.Troubles()) {
    v1::GroupStatus& group = groups[name];
    group.set_state(trouble.trouble == GroupTrouble::kRefused ? "refused" : "degraded");
    group.set_reason(trouble.reason);
  }

  for (const auto& [name, drain] : runtime.GroupDrains()) {
    groups[name].set_drain(drain.left.empty() ? "drained" : "draining");
    groups[name].set_drain_left(drain.left);
  }
  for (auto& [name, group] : groups) group.set_group(name);
  return groups;
}

v1::ModelStatus DescribeModel(Runtime& runtime, const KeyRing& keys, const ModelRow& row) {
  v1::ModelStatus model;
  model.set_model_id(row.model_id);
  model.set_tenant(keys.TenantName(row.tenant_id));
  model.set_state(StateName(row));
  model.set_applied_seq(row.applied_seq);
  model.set_unsaved(IsUnsaved(row));
  model.set_pending_requests(runtime.hub().NumPendingOf(row.tenant_id, row.model_id));
  model.set_group(row.group);
  model.set_move_to(row.move_to);
  model.set_reason(runtime.WaitReasonOf(row.model_id));
  return model;
}

v1::GetStatusResponse DescribeEngine(Runtime& runtime, const KeyRing& keys,
                                     const std::vector<v1::GroupStatus>& attached_groups) {
  v1::GetStatusResponse response;
  response.set_term(runtime.term());
  response.set_version(std::string(kVersion));
  response.set_pending_requests(runtime.hub().NumPending());
  std::map<std::string, v1::GroupStatus> groups = DescribeGroups(runtime, attached_groups);
  for (const ModelRow& row : runtime.directory().LiveModels()) {
    *response.add_models() = DescribeModel(runtime, keys, row);
    const auto group = groups.find(row.group);
    if (group != groups.end() && !row.is_offloaded)
      group->second.set_models(group->second.models() + 1);
  }
  for (auto& [name, group] : groups) *response.add_groups() = std::move(group);
  return response;
}

v1::DrainResponse DescribeLeftover(Runtime& runtime) {
  v1::DrainResponse response;
  for (const ModelRow& row : runtime.directory().LiveModels()) {
    if (IsUnsaved(row) && !row.is_offloaded) response.add_unsaved_model_ids(row.model_id);
  }
  response.set_pending_requests(runtime.hub().NumPending());
  return response;
}

}  // namespace lathe::engine
