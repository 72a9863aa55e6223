// Routes for the caller's key, tokens for it, and the tenant's audit log.
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/accounts_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

v1::ListAuditRequest DecodeListAudit(const Request& request) {
  v1::ListAuditRequest message;
  message.set_event_type(std::string(request.QueryValue("event_type").value_or("")));
  message.set_day(std::string(request.QueryValue("day").value_or("")));
  return message;
}

}  // namespace

std::vector<Route> TenantRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  const std::string own_key = "/api/v1/auth/apikey/me";
  return {
      {.method = "POST",
       .pattern = "/api/v1/auth/token",
       .tag = "keys",
       .summary = "A short-lived token to send instead of the key",
       .request = "Object",
       .answer = "TokenResponse",
       .handler = RpcRoute(
           engine, &TenantsStub::ExchangeToken,
           [](const Request&) { return v1::ExchangeTokenRequest(); },
           [](const auto&, const auto& answer) { return JsonResponse(TokenToJson(answer)); })},
      {.method = "GET",
       .pattern = own_key,
       .tag = "keys",
       .summary = "The key of this request, without its secret",
       .answer = "Object",
       .handler = RpcRoute(
           engine, &TenantsStub::GetOwnKey, [](const Request&) { return v1::GetOwnKeyRequest(); },
           [](const auto&, const auto& answer) { return JsonResponse(OwnKeyToJson(answer)); })},
      {.method = "DELETE",
       .pattern = own_key,
       .tag = "keys",
       .summary = "End the key of this request and its tokens",
       .handler = RpcRoute(
           engine, &TenantsStub::RevokeOwnKey,
           [](const Request&) { return v1::RevokeOwnKeyRequest(); },
           [](const auto&, const auto&) { return EmptyResponse(); })},
      {.method = "GET",
       .pattern = "/api/v1/audit",
       .tag = "keys",
       .summary = "Changes to keys, projects and checkpoints of one day; scope admin",
       .query = {"event_type", "day"},
       .answer = "Object",
       .handler = RpcRoute(
           engine, &TenantsStub::ListAudit, DecodeListAudit,
           [](const auto&, const auto& answer) { return JsonResponse(AuditToJson(answer)); })},
  };
}

}  // namespace lathe::gateway
