// Routes for projects, session search, usage and the state of the service.
#include <string>

#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/accounts_json.h"
#include "services/api-gateway/json/metadata_json.h"
#include "services/api-gateway/json/status_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

absl::StatusOr<v1::AssignSessionProjectRequest> DecodeAssign(const Request& request) {
  ASSIGN_OR_RETURN(v1::AssignSessionProjectRequest message, ReadJsonBody(request, kAssignProject));
  message.set_session_id(request.path_parameters[0]);
  return message;
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
  message.set_tenant(std::string(request.QueryValue("tenant").value_or("")));
  return message;
}

v1::GetCheckpointStorageRequest DecodeStorage(const Request& request) {
  v1::GetCheckpointStorageRequest message;
  if (const auto project = request.QueryValue("project_id")) {
    message.set_project_id(std::string(*project));
  }
  return message;
}

absl::StatusOr<v1::GetServiceStatusRequest> DecodeStatus(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/100));
  v1::GetServiceStatusRequest message;
  message.set_max_models(page.limit);
  return message;
}

}  // namespace

std::vector<Route> AccountRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "PUT",
       .pattern = "/api/v1/sessions/{session_id}/project",
       .tag = "sessions",
       .summary = "Move a session, and its runs, into a project",
       .description = "A project is the tenant's own and exists as soon as a session is in it. A "
                      "session cannot be taken out of projects again.",
       .request = "AssignProjectRequest",
       .handler = RpcRoute(engine, &AccountsStub::AssignSessionProject, DecodeAssign,
                           [](const auto&, const auto&) { return EmptyResponse(); })},
      {.method = "POST",
       .pattern = "/api/v1/sessions/search",
       .tag = "sessions",
       .summary = "The tenant's sessions that match, newest first",
       .request = "SearchSessionsRequest",
       .answer = "SearchSessionsResponse",
       .handler = JsonRoute(engine, &AccountsStub::SearchSessions, kSearchSessions, SearchToJson)},
      {.method = "GET",
       .pattern = "/api/v1/billing/usage/events",
       .tag = "usage",
       .summary = "What the tenant used, hour by hour",
       .description =
           "There with the result that was used, counted once, kept for 400 days. Without prices.",
       .query = {"starting_on", "ending_before", "tenant"},
       .answer = "ListUsageResponse",
       .handler = RpcRoute(
           engine, &AccountsStub::ListUsage, DecodeUsage,
           [](const auto&, const auto& answer) { return JsonResponse(UsageToJson(answer)); })},
      {.method = "GET",
       .pattern = "/api/v1/billing/usage/checkpoints/current",
       .tag = "usage",
       .summary = "What the tenant's checkpoints hold now, by project",
       .query = {"project_id"},
       .answer = "CheckpointStorageResponse",
       .handler = RpcRoute(engine, &AccountsStub::GetCheckpointStorage, DecodeStorage,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(CheckpointStorageToJson(answer));
                           })},
      {.method = "GET",
       .pattern = "/api/v1/status",
       .tag = "service",
       .summary = "Queues, the tenant's live models and what they wait for, groups of workers",
       .description = "At most `limit` models, 1 to 1,000, by default 100: those with the most "
                      "unfinished requests. Ranks and their memory need the scope admin.",
       .query = {"limit"},
       .answer = "ServiceStatus",
       .handler = RpcRoute(engine, &AccountsStub::GetServiceStatus, DecodeStatus,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(ServiceStatusToJson(answer));
                           })},
  };
}

}  // namespace lathe::gateway
