// Routes for who operates the service: what a group of workers holds, and taking it out of service.
#include <string>

#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/status_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

absl::StatusOr<v1::ListGroupModelsRequest> DecodeModels(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/100));
  v1::ListGroupModelsRequest message;
  message.set_group(request.path_parameters[0]);
  message.set_max_models(page.limit);
  return message;
}

// Request of a call about the group in the path.
template <typename Message>
Message OfGroup(const Request& request) {
  Message message;
  message.set_group(request.path_parameters[0]);
  return message;
}

v1::MoveModelRequest DecodeMove(const Request& request) {
  v1::MoveModelRequest message;
  message.set_group(request.path_parameters[0]);
  message.set_model_id(request.path_parameters[1]);
  return message;
}

}  // namespace

std::vector<Route> GroupRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  const std::string group = "/api/v1/groups/{group}";
  const auto done = [](const auto&, const auto&) { return EmptyResponse(); };
  return {
      {.method = "GET",
       .pattern = group + "/models",
       .tag = "groups",
       .summary = "The models of a group, of all tenants; scope operator",
       .query = {"limit"},
       .answer = "GroupModels",
       .handler = RpcRoute(engine, &GroupsStub::ListGroupModels, DecodeModels,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(GroupModelsToJson(answer));
                           })},
      {.method = "POST",
       .pattern = group + "/drain",
       .tag = "groups",
       .summary = "Take a group out of service; scope operator",
       .description = "Its models, new models and samples go to other groups of the same base "
                      "model. Running requests end first. Refused if no other group can do its "
                      "work.",
       .handler = RpcRoute(engine, &GroupsStub::DrainGroup, OfGroup<v1::DrainGroupRequest>, done)},
      {.method = "POST",
       .pattern = group + "/resume",
       .tag = "groups",
       .summary = "Put a drained group back into service; scope operator",
       .handler =
           RpcRoute(engine, &GroupsStub::ResumeGroup, OfGroup<v1::ResumeGroupRequest>, done)},
      {.method = "DELETE",
       .pattern = group,
       .tag = "groups",
       .summary = "Forget a group whose workers have ended for good; scope operator",
       .description = "Its models go to another group of their base model. If there is none, the "
                      "base model is served no longer.",
       .handler =
           RpcRoute(engine, &GroupsStub::RemoveGroup, OfGroup<v1::RemoveGroupRequest>, done)},
      {.method = "PUT",
       .pattern = group + "/models/{run_id}",
       .tag = "groups",
       .summary = "Move a model to the group; scope operator",
       .description = "It moves once its running requests have ended and its state is on disk. "
                      "Naming its present group cancels a move.",
       .handler = RpcRoute(engine, &GroupsStub::MoveModel, DecodeMove, done)},
  };
}

}  // namespace lathe::gateway
