#include <string>

#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;
using CheckpointsStub = v1::Checkpoints::StubInterface::async_interface;

// SDKs up to 0.33 send the weights access token in the body, later SDKs in a header. A header wins.
absl::StatusOr<v1::CopyWeightsRequest> DecodeCopy(const Request& request) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(request));
  ASSIGN_OR_RETURN(v1::CopyWeightsRequest message, CopyWeightsFromJson(body));
  message.set_idempotency_key(std::string(request.HeaderValue("x-idempotency-key")));
  const std::string_view token = request.HeaderValue("x-tinker-weights-access-token");
  if (!token.empty()) message.set_weights_access_token(std::string(token));
  return message;
}

}  // namespace

std::vector<Route> WeightsRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "POST",
       .pattern = "/api/v1/save_weights",
       .handler = JsonRoute(engine, &Stub::SaveWeights, SaveWeightsFromJson, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/save_weights_for_sampler",
       .handler = JsonRoute(engine, &Stub::SaveWeightsForSampler, SaveWeightsForSamplerFromJson,
                            FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/save_weights_external",
       .handler = JsonRoute(engine, &CheckpointsStub::SaveWeightsExternal,
                            SaveWeightsExternalFromJson, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/copy_weights",
       .handler = RpcRoute(engine, &CheckpointsStub::CopyWeights, DecodeCopy,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(CopyWeightsToJson(answer));
                           })},
      {.method = "POST",
       .pattern = "/api/v1/load_weights",
       .handler = JsonRoute(engine, &Stub::LoadWeights, LoadWeightsFromJson, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/weights_info",
       .handler = JsonRoute(engine, &Stub::GetWeightsInfo, WeightsInfoFromJson, WeightsInfoToJson)},
  };
}

}  // namespace lathe::gateway
