// Routes for the caller's key and tokens for it; for administrators keys, quotas and the audit log.
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/tenants_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kDefaultRows = 100;

std::string TextParameter(const Request& request, const char* name) {
  return std::string(request.QueryValue(name).value_or(""));
}

absl::StatusOr<v1::ListAuditRequest> DecodeListAudit(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/0));
  v1::ListAuditRequest message;
  message.set_event_type(TextParameter(request, "event_type"));
  message.set_day(TextParameter(request, "day"));
  message.set_tenant(TextParameter(request, "tenant"));
  message.set_actor(TextParameter(request, "actor"));
  message.set_object(TextParameter(request, "object"));
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

absl::StatusOr<v1::ListTenantKeysRequest> DecodeListKeys(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, kDefaultRows));
  v1::ListTenantKeysRequest message;
  message.set_tenant(TextParameter(request, "tenant"));
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  const std::string with_ended = TextParameter(request, "with_ended");
  bool is_wanted = false;
  if (!with_ended.empty() && !absl::SimpleAtob(with_ended, &is_wanted)) {
    return WithDetail(absl::InvalidArgumentError("with_ended must be true or false"),
                      "invalid_field", "with_ended");
  }
  message.set_with_ended(is_wanted);
  return message;
}

v1::RevokeKeyRequest DecodeRevokeKey(const Request& request) {
  v1::RevokeKeyRequest message;
  message.set_key_id(request.path_parameters[0]);
  return message;
}

absl::StatusOr<v1::RotateKeyRequest> DecodeRotateKey(const Request& request) {
  ASSIGN_OR_RETURN(v1::RotateKeyRequest message, ReadJsonBody(request, kRotateKey));
  message.set_key_id(request.path_parameters[0]);
  return message;
}

absl::StatusOr<v1::ListTenantsRequest> DecodeListTenants(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, kDefaultRows));
  v1::ListTenantsRequest message;
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

absl::StatusOr<v1::SetQuotaRequest> DecodeSetQuota(const Request& request) {
  v1::SetQuotaRequest message;
  ASSIGN_OR_RETURN(*message.mutable_quota(), ReadJsonBody(request, kQuota));
  message.set_tenant(request.path_parameters[0]);
  return message;
}

std::vector<Route> OwnKeyRoutes(EngineClient& engine) {
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
  };
}

std::vector<Route> KeyRoutes(EngineClient& engine) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/keys",
       .tag = "keys",
       .summary = "Keys, newest first; scope admin",
       .description =
           "Those of the caller's tenant. With the scope operator those of all tenants, or "
           "of `tenant`. The key itself is not in the answer.",
       .query = {"tenant", "with_ended", "limit", "offset"},
       .answer = "ListKeysResponse",
       .handler = RpcRoute(engine, &TenantsStub::ListTenantKeys, DecodeListKeys,
                           [](const auto& request, const auto& answer) {
                             return JsonResponse(
                                 KeysToJson(answer, request.limit(), request.offset()));
                           })},
      {.method = "POST",
       .pattern = "/api/v1/keys",
       .tag = "keys",
       .summary = "Make a key; scope admin",
       .description = "`api_key` of the answer is not stored anywhere and is shown only here.",
       .request = "CreateKeyRequest",
       .answer = "NewKey",
       .handler = JsonRoute(engine, &TenantsStub::CreateTenantKey, kCreateKey, CreatedKeyToJson)},
      {.method = "DELETE",
       .pattern = "/api/v1/keys/{key_id}",
       .tag = "keys",
       .summary = "End a key and its tokens; scope admin",
       .handler = RpcRoute(engine, &TenantsStub::RevokeTenantKey, DecodeRevokeKey,
                           [](const auto&, const auto&) { return EmptyResponse(); })},
      {.method = "POST",
       .pattern = "/api/v1/keys/{key_id}/rotate",
       .tag = "keys",
       .summary = "Make a key with the rights of another, which ends; scope admin",
       .request = "RotateKeyRequest",
       .answer = "NewKey",
       .handler = RpcRoute(
           engine, &TenantsStub::RotateTenantKey, DecodeRotateKey,
           [](const auto&, const auto& answer) { return JsonResponse(RotatedKeyToJson(answer)); })},
  };
}

std::vector<Route> AdministrationRoutes(EngineClient& engine) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/tenants",
       .tag = "tenants",
       .summary = "Tenants by name, with quotas and current use; scope admin",
       .description = "The caller's own, and with the scope operator all.",
       .query = {"limit", "offset"},
       .answer = "ListTenantsResponse",
       .handler = RpcRoute(engine, &TenantsStub::ListTenants, DecodeListTenants,
                           [](const auto& request, const auto& answer) {
                             return JsonResponse(
                                 TenantsToJson(answer, request.limit(), request.offset()));
                           })},
      {.method = "PUT",
       .pattern = "/api/v1/tenants/{tenant_name}/quota",
       .tag = "tenants",
       .summary = "Set limits of a tenant; scope operator",
       .description = "0 lifts a limit, an absent one stays as it is. Use above a new limit stays.",
       .request = "Quota",
       .answer = "Quota",
       .handler = RpcRoute(engine, &TenantsStub::SetTenantQuota, DecodeSetQuota,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(QuotaToJson(answer.quota()));
                           })},
      {.method = "GET",
       .pattern = "/api/v1/audit",
       .tag = "keys",
       .summary = "Changes to keys, projects and checkpoints of one day; scope admin",
       .description =
           "Oldest first. With `limit` the newest ones that match. `is_cut` says that the "
           "day has more than the newest 10,000, which were looked at.",
       .query = {"event_type", "day", "tenant", "actor", "object", "limit", "offset"},
       .answer = "ListAuditResponse",
       .handler = RpcRoute(
           engine, &TenantsStub::ListAudit, DecodeListAudit,
           [](const auto&, const auto& answer) { return JsonResponse(AuditToJson(answer)); })},
  };
}

}  // namespace

std::vector<Route> TenantRoutes(const RouteContext& context) {
  std::vector<Route> routes = OwnKeyRoutes(context.engine);
  for (const auto list : {KeyRoutes, AdministrationRoutes}) {
    std::vector<Route> more = list(context.engine);
    std::move(more.begin(), more.end(), std::back_inserter(routes));
  }
  return routes;
}

}  // namespace lathe::gateway
