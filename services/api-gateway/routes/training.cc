#include <google/protobuf/arena.h>

#include "absl/strings/match.h"
#include "libs/common/errors.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/json/model_json.h"
#include "services/api-gateway/json/training_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"
#include "services/api-gateway/wire/wire.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

constexpr int64_t kMaxTrainingBytes = int64_t{128} << 20;
constexpr int64_t kMaxInflatedTrainingBytes = int64_t{512} << 20;
// Above the SDK's requests of 5 MB. A batch that repeats one datum compresses thousandfold.
constexpr int64_t kFreeInflatedTrainingBytes = 8 << 20;

absl::Status DecodeBody(Request& request, bool forward_only, v1::ForwardBackwardRequest* message) {
  const absl::string_view type = AbslView(request.HeaderValue("content-type"));
  if (absl::StartsWithIgnoreCase(type, "application/x-protobuf")) {
    const auto reserve = [&request](int64_t part_bytes) { return request.memory.Add(part_bytes); };
    const absl::Status decoded = ForwardBackwardFromWire(request.body, message, reserve);
    if (forward_only) message->set_forward_only(true);
    return decoded;
  }
  if (absl::StartsWithIgnoreCase(type, "application/json")) {
    return ForwardBackwardFromJson(request.body, forward_only, message);
  }
  return WithDetail(
      absl::InvalidArgumentError("Content-Type is not application/x-protobuf or application/json"),
      "unsupported_media_type");
}

// Reports a refused request to the engine, which records its seq_id as failed. Later requests in
// the sequence then do not wait for it, and an optim_step detects that its gradient is incomplete.
asio::awaitable<void> RecordRefusal(EngineClient& engine, const Request& request,
                                    const v1::ForwardBackwardRequest& partial,
                                    const absl::Status& refusal) {
  v1::ForwardBackwardRequest message;
  message.set_model_id(partial.model_id());
  message.set_seq_id(partial.seq_id());
  message.set_forward_only(partial.forward_only());
  message.set_malformed(std::string(refusal.message()));
  // The caller gets the refusal even if this call fails.
  const auto recorded = co_await engine.Call(&Stub::ForwardBackward, message, CallerOf(request));
  recorded.status().IgnoreError();
}

// Refuses create_custom_loss with an explanation, for clients that call it although client/config
// turns it off. A traced graph could take any time and memory of the device, which all tenants
// share.
asio::awaitable<absl::StatusOr<Response>> RefuseCustomLoss(Request&) {
  co_return WithDetail(
      absl::InvalidArgumentError("create_custom_loss is not offered by this server: "
                                 "forward_backward_custom runs the loss in your process"),
      "not_offered");
}

Handler ForwardBackwardHandler(EngineClient& engine, bool forward_only) {
  return [&engine, forward_only](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    google::protobuf::Arena arena;
    auto& message = *google::protobuf::Arena::CreateMessage<v1::ForwardBackwardRequest>(&arena);
    const absl::Status decoded = DecodeBody(request, forward_only, &message);
    request.FreeBody();
    if (!decoded.ok()) {
      // A request that may be sent again takes no place in the sequence.
      if (decoded.code() == absl::StatusCode::kResourceExhausted) co_return decoded;
      if (!message.model_id().empty() && message.seq_id() > 0) {
        co_await RecordRefusal(engine, request, message, decoded);
      }
      co_return decoded;
    }
    SetIdempotencyKey(request, message);
    const absl::StatusOr<v1::SubmitResponse> answer =
        co_await engine.Call(&Stub::ForwardBackward, message, CallerOf(request));
    if (!answer.ok()) {
      co_return MayRepeat(message) ? answer.status() : OfUnrepeatable(answer.status());
    }
    Response response = JsonResponse(FutureToJson(*answer));
    response.request_id = answer->request_id();
    co_return response;
  };
}

}  // namespace

std::vector<Route> TrainingRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "POST",
       .pattern = "/api/v1/forward_backward",
       .tag = "training",
       .summary = "Loss, outputs and gradient, which adds up until the next step",
       .description = "The SDK sends the protobuf form, tinker_public.ForwardBackwardRequest. What "
                      "can be read but not run fails through the future.",
       .request = "ForwardBackwardRequest",
       .takes_protobuf = true,
       .answer = "Future",
       .max_body_bytes = kMaxTrainingBytes,
       .max_inflated_bytes = kMaxInflatedTrainingBytes,
       .free_inflated_bytes = kFreeInflatedTrainingBytes,
       .handler = ForwardBackwardHandler(engine, /*forward_only=*/false)},
      // SDKs before 0.25 and plain HTTP users call this route. Newer SDKs set forward_only instead.
      {.method = "POST",
       .pattern = "/api/v1/forward",
       .tag = "training",
       .summary = "Loss and outputs without a gradient",
       .request = "ForwardRequest",
       .takes_protobuf = true,
       .answer = "Future",
       .max_body_bytes = kMaxTrainingBytes,
       .max_inflated_bytes = kMaxInflatedTrainingBytes,
       .free_inflated_bytes = kFreeInflatedTrainingBytes,
       .handler = ForwardBackwardHandler(engine, /*forward_only=*/true)},
      {.method = "POST",
       .pattern = "/api/v1/create_custom_loss",
       .tag = "training",
       .summary = "Refused: the loss runs in the client",
       .request = "Object",
       .answer = "Object",
       .handler = RefuseCustomLoss},
      {.method = "POST",
       .pattern = "/api/v1/optim_step",
       .tag = "training",
       .summary = "One AdamW step with the gradient that has added up",
       .request = "OptimStepRequest",
       .answer = "Future",
       .handler = TrainingJsonRoute(engine, &Stub::OptimStep, kOptimStep, FutureToJson)},
  };
}

}  // namespace lathe::gateway
