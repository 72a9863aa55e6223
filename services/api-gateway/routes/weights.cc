#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {

std::vector<Route> WeightsRoutes(const RouteContext& context) {
  using Stub = EngineClient::AsyncStub;
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
       .pattern = "/api/v1/load_weights",
       .handler = JsonRoute(engine, &Stub::LoadWeights, LoadWeightsFromJson, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/weights_info",
       .handler = JsonRoute(engine, &Stub::GetWeightsInfo, WeightsInfoFromJson, WeightsInfoToJson)},
  };
}

}  // namespace lathe::gateway
