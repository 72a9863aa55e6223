#include "services/engine/rpc/service_status.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "libs/common/version.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/row_convert.h"

namespace lathe::engine {
namespace {

// A tenant sees neither process ids nor how many requests of others a draining group holds.
v1::GroupState ToTenantView(const v1::GroupStatus& group, bool with_ranks) {
  v1::GroupState proto;
  proto.set_group(group.group());
  proto.set_state(group.state());
  proto.set_base_model(group.base_model());
  proto.set_epoch(group.epoch());
  proto.set_progress(group.progress());
  proto.set_reason(group.reason());
  proto.set_role(group.role());
  proto.set_drain(group.drain());
  proto.set_num_ranks(group.ranks_size());
  if (!with_ranks) return proto;
  for (const v1::RankStatus& rank : group.ranks()) {
    v1::RankState& state = *proto.add_ranks();
    state.set_rank(rank.rank());
    state.set_device(rank.device());
    if (rank.has_memory()) *state.mutable_memory() = rank.memory();
  }
  return proto;
}

using PendingModel = std::pair<int64_t, ModelRow>;

// Returns up to `max_models` live models of the tenant with their unfinished requests, those with
// the most first. Models without any are only looked at while there is room for them.
std::vector<PendingModel> BusiestModels(Runtime& runtime, const std::string& tenant_id,
                                        size_t max_models) {
  const std::unordered_map<std::string, int64_t> busy = runtime.hub().NumPendingByOwner(tenant_id);
  std::vector<std::pair<std::string, int64_t>> owners(busy.begin(), busy.end());
  std::ranges::sort(owners, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  std::vector<PendingModel> models;
  for (const auto& [owner_id, num_pending] : owners) {
    if (models.size() == max_models) return models;
    std::optional<ModelRow> row = runtime.directory().FindModel(tenant_id, owner_id);
    if (row) models.emplace_back(num_pending, *std::move(row));
  }
  for (ModelRow& row : runtime.directory().LiveModelsOf(tenant_id, max_models + models.size())) {
    if (models.size() == max_models) return models;
    if (!busy.contains(row.model_id)) models.emplace_back(0, std::move(row));
  }
  return models;
}

void AddModels(Runtime& runtime, const Caller& caller, int64_t max_models,
               v1::GetServiceStatusResponse& response) {
  response.set_num_models(runtime.directory().CountLiveModelsOf(caller.tenant_id));
  for (const auto& [num_pending, row] :
       BusiestModels(runtime, caller.tenant_id, static_cast<size_t>(max_models))) {
    v1::QueuedModel& model = *response.add_models();
    model.set_model_id(row.model_id);
    model.set_state(StateName(row));
    model.set_applied_seq(row.applied_seq);
    model.set_pending_requests(num_pending);
    model.set_group(row.group);
    model.set_move_to(row.move_to);
    model.set_reason(runtime.WaitReasonOf(row.model_id));
  }
}

}  // namespace

void AddQueue(const QueueCount& count, v1::OperationQueue& proto) {
  proto.set_operation(std::string(TraitsOf(count.kind).name));
  proto.set_waiting(count.num_waiting);
  proto.set_running(count.num_running);
}

std::vector<v1::GroupState> DescribeGroupStates(
    Runtime& runtime, const std::vector<v1::GroupStatus>& attached_groups) {
  std::vector<v1::GroupState> states;
  for (const auto& [name, group] : DescribeGroups(runtime, attached_groups)) {
    states.push_back(ToTenantView(group, /*with_ranks=*/false));
  }
  return states;
}

v1::GetServiceStatusResponse DescribeService(Runtime& runtime, const Caller& caller,
                                             int64_t max_models,
                                             const std::vector<v1::GroupStatus>& attached_groups) {
  v1::GetServiceStatusResponse response;
  *response.mutable_read_at() = ToTimestamp(runtime.NowNanos());
  response.set_version(std::string(kVersion));
  response.set_term(runtime.term());
  response.set_refusal(std::string(runtime.CheckRoom().message()));
  for (const QueueCount& count : runtime.AllQueues()) AddQueue(count, *response.add_all_queues());
  for (const QueueCount& count : runtime.QueuesOf(caller.tenant_id)) {
    AddQueue(count, *response.add_own_queues());
  }
  AddModels(runtime, caller, max_models, response);
  const bool is_admin = caller.scopes.HasAny(Scope::kAdmin);
  for (const auto& [name, group] : DescribeGroups(runtime, attached_groups)) {
    *response.add_groups() = ToTenantView(group, is_admin);
  }
  return response;
}

}  // namespace lathe::engine
