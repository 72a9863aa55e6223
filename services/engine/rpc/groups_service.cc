#include "services/engine/rpc/groups_service.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/logging/logging.h"
#include "services/engine/rpc/admin_service.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

bool IsGroup(Runtime& runtime, const std::string& name) {
  const std::vector<GroupRow> groups = runtime.directory().Groups();
  return std::any_of(groups.begin(), groups.end(), [&](const GroupRow& row) {
    return row.group == name && !row.base_model.empty();
  });
}

void NoFields(const Answer&) {}

}  // namespace

GroupsService::GroupsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads)
    : runtime_(runtime), keys_(keys), reads_(reads) {}

GroupsService::~GroupsService() = default;

absl::Status GroupsService::DescribeModels(const v1::ListGroupModelsRequest& request,
                                           v1::ListGroupModelsResponse& response) {
  const int64_t max_models = request.max_models() == 0 ? kDefaultGroupModels : request.max_models();
  if (max_models < 0 || max_models > kMaxGroupModels) {
    return Invalid(
        "invalid_field", "max_models",
        absl::StrFormat("max_models is %d, it must be 0 to %d", max_models, kMaxGroupModels));
  }
  if (!IsGroup(runtime_, request.group())) {
    return WithDetail(absl::NotFoundError(absl::StrFormat(
                          "group '%s' does not exist", request.group().substr(0, kMaxShownBytes))),
                      "not_found", "group");
  }
  using Pending = std::pair<int64_t, const ModelRow*>;
  const std::vector<ModelRow> rows = runtime_.directory().LiveModelsAt(request.group());
  std::vector<Pending> models;
  int64_t num_pending = 0;
  for (const ModelRow& row : rows) {
    models.emplace_back(runtime_.hub().NumPendingOf(row.tenant_id, row.model_id), &row);
    num_pending += models.back().first;
  }
  std::ranges::stable_sort(models, std::greater(), &Pending::first);
  response.set_num_models(static_cast<int64_t>(models.size()));
  response.set_pending_requests(num_pending);
  if (static_cast<int64_t>(models.size()) > max_models) models.resize(max_models);
  for (const auto& [count, row] : models) {
    *response.add_models() = DescribeModel(runtime_, keys_, *row);
  }
  const auto drains = runtime_.GroupDrains();
  const auto drain = drains.find(request.group());
  if (drain != drains.end()) response.set_drain_left(drain->second.left);
  return absl::OkStatus();
}

GroupsService::Reactor* GroupsService::ListGroupModels(Context* context,
                                                       const v1::ListGroupModelsRequest* request,
                                                       v1::ListGroupModelsResponse* response) {
  // It reads no store, but a group may hold many models.
  return ReadCall(
      reads_, keys_, context, "Groups.ListGroupModels",
      [this, request, response](const Caller&) { return DescribeModels(*request, *response); });
}

GroupsService::Reactor* GroupsService::SetDraining(Context* context, RpcAccess access,
                                                   const std::string& group, bool is_draining) {
  return ChangeCall<engine::DrainGroup>(
      runtime_, keys_, context, access,
      [&](const Caller& caller) {
        LogInfo(
            is_draining ? "drain of a group requested" : "return of a group to service requested",
            {{"group", group}, {"key_id", caller.key_id}});
        return engine::DrainGroup{.group = group,
                                  .is_draining = is_draining,
                                  .tenant_id = caller.tenant_id,
                                  .actor = caller.key_id};
      },
      NoFields);
}

GroupsService::Reactor* GroupsService::DrainGroup(Context* context,
                                                  const v1::DrainGroupRequest* request,
                                                  v1::DrainGroupResponse*) {
  return SetDraining(context, "Groups.DrainGroup", request->group(), /*is_draining=*/true);
}

GroupsService::Reactor* GroupsService::ResumeGroup(Context* context,
                                                   const v1::ResumeGroupRequest* request,
                                                   v1::ResumeGroupResponse*) {
  return SetDraining(context, "Groups.ResumeGroup", request->group(), /*is_draining=*/false);
}

GroupsService::Reactor* GroupsService::RemoveGroup(Context* context,
                                                   const v1::RemoveGroupRequest* request,
                                                   v1::RemoveGroupResponse*) {
  return ChangeCall<engine::RemoveGroup>(
      runtime_, keys_, context, "Groups.RemoveGroup",
      [&](const Caller& caller) {
        LogInfo("removal of a group requested",
                {{"group", request->group()}, {"key_id", caller.key_id}});
        return engine::RemoveGroup{
            .group = request->group(), .tenant_id = caller.tenant_id, .actor = caller.key_id};
      },
      NoFields);
}

GroupsService::Reactor* GroupsService::MoveModel(Context* context,
                                                 const v1::MoveModelRequest* request,
                                                 v1::MoveModelResponse*) {
  return ChangeCall<engine::MoveModel>(
      runtime_, keys_, context, "Groups.MoveModel",
      [&](const Caller& caller) {
        LogInfo("migration of a model requested", {{"model_id", request->model_id()},
                                                   {"group", request->group()},
                                                   {"key_id", caller.key_id}});
        return engine::MoveModel{.model_id = request->model_id(),
                                 .group = request->group(),
                                 .tenant_id = caller.tenant_id,
                                 .actor = caller.key_id};
      },
      NoFields);
}

}  // namespace lathe::engine
