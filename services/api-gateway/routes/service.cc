// Routes for client/*, telemetry, capabilities and health.
#include "libs/common/errors.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/routes/client_config.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kMaxTelemetryBytes = 8 << 20;

// Readiness for load balancers. The internal page says more.
Handler ReadyHandler(std::function<absl::Status()> check_ready) {
  return [check_ready =
              std::move(check_ready)](Request&) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::Status status = check_ready();
    if (status.ok()) co_return JsonResponse({{"status", "ok"}});
    co_return WithDetail(status, "not_ready");
  };
}

}  // namespace

std::vector<Route> ServiceRoutes(const RouteContext& context) {
  return {
      {.method = "POST",
       .pattern = "/api/v1/client/config",
       .tag = "service",
       .summary = "What the SDK shall do",
       .request = "ClientConfigRequest",
       .answer = "ClientConfigResponse",
       .access = Access::kKeyUnlessEngineDown,
       .carries_notices = true,
       .handler = ConstantRoute(ClientConfig(context.options))},
      {.method = "POST",
       .pattern = "/api/v1/client/dynamic_config",
       .tag = "service",
       .summary = "What the SDK shall do, asked again now and then",
       .request = "ClientConfigRequest",
       .answer = "Object",
       .access = Access::kKeyUnlessEngineDown,
       .carries_notices = true,
       .handler = ConstantRoute(DynamicClientConfig())},
      // Telemetry is discarded unread, because its batches hold request headers, including API
      // keys. This route must never fail: old clients repeat a failed batch without end, which
      // delays their own errors.
      {.method = "POST",
       .pattern = "/api/v1/telemetry",
       .tag = "service",
       .summary = "Discarded unread",
       .request = "Object",
       .answer = "TelemetryResponse",
       .access = Access::kKeyUnlessEngineDown,
       .max_body_bytes = kMaxTelemetryBytes,
       .handler = ConstantRoute({{"status", "accepted"}})},
      {.method = "GET",
       .pattern = "/api/v1/healthz",
       .tag = "service",
       .summary = "Whether the gateway serves",
       .answer = "Ok",
       .access = Access::kPublic,
       .handler = ConstantRoute({{"status", "ok"}})},
      {.method = "GET",
       .pattern = "/livez",
       .tag = "service",
       .summary = "Whether the process answers",
       .answer = "Ok",
       .access = Access::kPublic,
       .handler = ConstantRoute({{"status", "ok"}})},
      {.method = "GET",
       .pattern = "/readyz",
       .tag = "service",
       .summary = "Whether the gateway reaches the engine and is not stopping; 503 if not",
       .answer = "Ok",
       .access = Access::kPublic,
       .handler = ReadyHandler(context.check_ready)},
      {.method = "GET",
       .pattern = "/api/v1/get_server_capabilities",
       .tag = "service",
       .summary = "The models served and their limits",
       .answer = "CapabilitiesResponse",
       .handler = RpcRoute(
           context.engine, &EngineClient::AsyncStub::GetCapabilities,
           [](const Request&) { return v1::GetCapabilitiesRequest(); },
           [](const auto&, const v1::GetCapabilitiesResponse& answer) {
             return JsonResponse(CapabilitiesToJson(answer));
           })},
  };
}

}  // namespace lathe::gateway
