// Routes for projects, session search and usage.
#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/accounts_json.h"
#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

absl::StatusOr<v1::AssignSessionProjectRequest> DecodeAssign(const Request& request) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(request));
  return AssignProjectFromJson(body, request.path_parameters[0]);
}

absl::StatusOr<google::protobuf::Timestamp> TimeParameter(const Request& request,
                                                          const char* name) {
  const auto text = request.QueryValue(name);
  if (text) return TimestampFromText(*text, name);
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("query parameter %s is missing", name)),
      "invalid_field", name);
}

absl::StatusOr<v1::ListUsageRequest> DecodeUsage(const Request& request) {
  v1::ListUsageRequest message;
  ASSIGN_OR_RETURN(*message.mutable_starting_on(), TimeParameter(request, "starting_on"));
  ASSIGN_OR_RETURN(*message.mutable_ending_before(), TimeParameter(request, "ending_before"));
  return message;
}

v1::GetCheckpointStorageRequest DecodeStorage(const Request& request) {
  v1::GetCheckpointStorageRequest message;
  if (const auto project = request.QueryValue("project_id")) {
    message.set_project_id(std::string(*project));
  }
  return message;
}

}  // namespace

std::vector<Route> AccountRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "PUT",
       .pattern = "/api/v1/sessions/{session_id}/project",
       .handler = RpcRoute(engine, &AccountsStub::AssignSessionProject, DecodeAssign,
                           [](const auto&, const auto&) { return EmptyResponse(); })},
      {.method = "POST",
       .pattern = "/api/v1/sessions/search",
       .handler = JsonRoute(engine, &AccountsStub::SearchSessions, SearchFromJson, SearchToJson)},
      {.method = "GET",
       .pattern = "/api/v1/billing/usage/events",
       .handler = RpcRoute(
           engine, &AccountsStub::ListUsage, DecodeUsage,
           [](const auto&, const auto& answer) { return JsonResponse(UsageToJson(answer)); })},
      {.method = "GET",
       .pattern = "/api/v1/billing/usage/checkpoints/current",
       .handler = RpcRoute(engine, &AccountsStub::GetCheckpointStorage, DecodeStorage,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(CheckpointStorageToJson(answer));
                           })},
  };
}

}  // namespace lathe::gateway
