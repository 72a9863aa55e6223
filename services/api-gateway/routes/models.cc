#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

}  // namespace

std::vector<Route> ModelRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "POST",
       .pattern = "/api/v1/create_model",
       .tag = "training",
       .summary = "Create a LoRA model",
       .description = "The model is named {session_id}:train:{model_seq_id}.",
       .request = "CreateModelRequest",
       .answer = "Future",
       .handler = JsonRoute(engine, &Stub::CreateModel, kCreateModel, FutureToJson)},
      {.method = "POST",
       .pattern = "/api/v1/get_info",
       .tag = "training",
       .summary = "What a model is",
       .request = "ModelRequest",
       .answer = "GetInfoResponse",
       .handler = JsonRoute(engine, &Stub::GetModel, kGetInfo, GetInfoToJson)},
      {.method = "POST",
       .pattern = "/api/v1/unload_model",
       .tag = "training",
       .summary = "Free a model",
       .request = "ModelRequest",
       .answer = "Future",
       .handler = JsonRoute(engine, &Stub::UnloadModel, kUnloadModel, FutureToJson)},
  };
}

}  // namespace lathe::gateway
