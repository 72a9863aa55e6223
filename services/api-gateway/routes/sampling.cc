#include "libs/common/status_macros.h"
#include "services/api-gateway/json/sampling_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

// Room for two million tokens. Parsing takes up to fourteen times the memory of the body.
constexpr int64_t kMaxSampleBytes = int64_t{16} << 20;

absl::StatusOr<v1::SampleRequest> DecodeSample(const Request& request) {
  RETURN_IF_ERROR(CheckJsonType(request));
  return SampleFromJson(request.body);
}

absl::StatusOr<v1::GetSamplerRequest> DecodeGetSampler(const Request& request) {
  v1::GetSamplerRequest message;
  message.set_sampling_session_id(request.path_parameters[0]);
  return message;
}

}  // namespace

std::vector<Route> SamplingRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "POST",
       .pattern = "/api/v1/create_sampling_session",
       .tag = "sampling",
       .summary = "Sample from a base model or a checkpoint",
       .request = "CreateSamplingSessionRequest",
       .answer = "CreateSamplingSessionResponse",
       .handler = JsonRoute(engine, &Stub::CreateSamplingSession, kCreateSamplingSession,
                            CreateSamplingSessionToJson)},
      {.method = "POST",
       .pattern = "/api/v1/join_sampling_session",
       .tag = "sampling",
       .summary = "Number a copy of a sampling client",
       .request = "JoinSamplingSessionRequest",
       .answer = "JoinSamplingSessionResponse",
       .handler = JsonRoute(engine, &Stub::JoinSamplingSession, kJoinSamplingSession,
                            JoinSamplingSessionToJson)},
      {.method = "POST",
       .pattern = "/api/v1/asample",
       .tag = "sampling",
       .summary = "Sample",
       .request = "SampleRequest",
       .answer = "SampleResponse",
       .errors = {{429, "A bound on queued work was reached."}},
       .max_body_bytes = kMaxSampleBytes,
       .handler = RpcRoute(engine, &Stub::Sample, DecodeSample,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(SampleFutureToJson(answer));
                           })},
      // Every id gets the same answer, because the SDK would retry an error for minutes.
      {.method = "POST",
       .pattern = "/api/v1/cancel_future",
       .tag = "futures",
       .summary = "Drop a sample that is no longer awaited",
       .description = "Unless it is complete, the sample fails with `the sample was cancelled` and "
                      "its place goes to others. Every id is answered alike: an unknown, complete "
                      "or foreign one is left as it is.",
       .request = "CancelFutureRequest",
       .answer = "Object",
       .handler = JsonRoute(engine, &Stub::CancelSample, kCancelFuture,
                            [](const auto&) { return Json::object(); })},
      {.method = "GET",
       .pattern = "/api/v1/samplers/{sampling_session_id}",
       .tag = "sampling",
       .summary = "What a sampling session samples from",
       .answer = "SamplerResponse",
       .handler = RpcRoute(
           engine, &Stub::GetSampler, DecodeGetSampler,
           [](const auto&, const auto& answer) { return JsonResponse(GetSamplerToJson(answer)); })},
  };
}

}  // namespace lathe::gateway
