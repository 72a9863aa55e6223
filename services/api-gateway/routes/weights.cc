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
  ASSIGN_OR_RETURN(v1::CopyWeightsRequest message, ReadJsonBody(request, kCopyWeights));
  message.set_idempotency_key(std::string(request.HeaderValue(kIdempotencyKey)));
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
       .tag = "weights",
       .summary = "Save weights, moments and step count",
       .request = "SaveWeightsRequest",
       .answer = "Future",
       .handler = TrainingJsonRoute(engine, &Stub::SaveWeights, kSaveWeights, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/save_weights_for_sampler",
       .tag = "weights",
       .summary = "Save an immutable version for sampling",
       .request = "SaveWeightsForSamplerRequest",
       .answer = "Future",
       .handler = TrainingJsonRoute(engine, &Stub::SaveWeightsForSampler, kSaveWeightsForSampler,
                                    FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/save_weights_external",
       .tag = "weights",
       .summary = "Save a PEFT folder for download",
       .request = "SaveWeightsExternalRequest",
       .answer = "Future",
       .handler = JsonRoute(engine, &CheckpointsStub::SaveWeightsExternal, kSaveWeightsExternal,
                            FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/copy_weights",
       .tag = "weights",
       .summary = "Copy a checkpoint into a run of its own",
       .description =
           "X-Idempotency-Key names the copy: the same key is answered with the same one.",
       .request = "CopyWeightsRequest",
       .answer = "CopyWeightsResponse",
       .handler = RpcRoute(engine, &CheckpointsStub::CopyWeights, DecodeCopy,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(CopyWeightsToJson(answer));
                           })},
      {.method = "POST",
       .pattern = "/api/v1/load_weights",
       .tag = "weights",
       .summary = "Load a checkpoint into a model, or make a model of it",
       .request = "LoadWeightsRequest",
       .answer = "Future",
       .handler = TrainingJsonRoute(engine, &Stub::LoadWeights, kLoadWeights, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/weights_info",
       .tag = "weights",
       .summary = "What is needed to load a checkpoint",
       .request = "WeightsInfoRequest",
       .answer = "WeightsInfoResponse",
       .handler = JsonRoute(engine, &Stub::GetWeightsInfo, kWeightsInfo, WeightsInfoToJson)},
  };
}

}  // namespace lathe::gateway
