// Routes that decode a request, make one RPC and encode its response.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "protos/lathe/v1/tenants.pb.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/json/fields.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

Response JsonResponse(const Json& body);
// Returns a response of status 204 without a body.
Response EmptyResponse();

// InvalidArgument `unsupported_media_type` if there is a Content-Type other than application/json.
absl::Status CheckJsonType(const Request& request);
// Reads a small JSON body.
template <typename T>
absl::StatusOr<T> ReadJsonBody(const Request& request, const BodyFields<T>& body) {
  if (absl::Status status = CheckJsonType(request); !status.ok()) return status;
  return ReadBody(request.body, body);
}

// Query parameters `limit` and `offset`.
struct Page {
  int64_t limit = 20;
  int64_t offset = 0;
};
// An absent parameter gets `default_limit` or 0. InvalidArgument if one is not an integer. The
// engine checks the bounds.
absl::StatusOr<Page> ReadPage(const Request& request, int64_t default_limit);

// Checks query parameter `access_scope`: "owned" (the default) or "accessible". Both select the
// same objects, because a tenant sees only its own. InvalidArgument for another value.
absl::Status CheckAccessScope(const Request& request);

// Returns false for a request that would be another one if a client sent it again: it has neither a
// number nor a name.
template <typename Req>
bool MayRepeat(const Req& message) {
  if constexpr (requires { message.idempotency_key(), message.seq_id(); }) {
    if constexpr (requires { message.has_model_seq_id(); }) {
      if (message.has_model_seq_id()) return true;
    }
    return message.seq_id() > 0 || !message.idempotency_key().empty();
  }
  // A lost answer loses the key that it has.
  return !std::is_same_v<Req, v1::CreateKeyRequest> && !std::is_same_v<Req, v1::RotateKeyRequest>;
}

// Returns the error of a call whose request may not be repeated. If the connection broke during the
// call, or nobody answered in time, that is DeadlineExceeded `outcome_unknown`; otherwise `status`.
absl::Status OfUnrepeatable(const absl::Status& status);

// Returns the caller on whose behalf a handler calls the engine.
inline Caller CallerOf(const Request& request) { return {request.api_key, request.span}; }

// A call decoded from a request. It outlives the RPC. Its types are erased, because one coroutine
// per method takes long to compile.
class RouteCall {
 public:
  virtual ~RouteCall() = default;
  virtual void Start(EngineClient::Peer& peer, grpc::ClientContext* context,
                     std::function<void(grpc::Status)> on_end) = 0;
  // Encodes the response of an RPC that succeeded.
  virtual Response Encode() const = 0;
  // See MayRepeat.
  virtual bool may_repeat() const = 0;
};
using DecodeCall = std::function<absl::StatusOr<std::shared_ptr<RouteCall>>(const Request&)>;
// `engine` must outlive the handler.
Handler CallRoute(EngineClient& engine, DecodeCall decode);

template <typename Async, typename Req, typename Resp, typename EncodeFn>
class TypedRouteCall final : public RouteCall {
 public:
  TypedRouteCall(EngineClient::UnaryMethod<Async, Req, Resp> method, Req request, EncodeFn encode)
      : method_(method), request_(std::move(request)), encode_(encode) {}

  void Start(EngineClient::Peer& peer, grpc::ClientContext* context,
             std::function<void(grpc::Status)> on_end) override {
    (stub_.Of(peer)->*method_)(context, &request_, &response_, std::move(on_end));
  }
  Response Encode() const override {
    Response response = encode_(request_, response_);
    if constexpr (requires { response_.request_id(); })
      response.request_id = response_.request_id();
    return response;
  }
  bool may_repeat() const override { return MayRepeat(request_); }

 private:
  const EngineClient::UnaryMethod<Async, Req, Resp> method_;
  const Req request_;
  const EncodeFn encode_;
  Resp response_;
  EngineClient::StubOf<Async> stub_;
};

// `decode` makes a Req or a StatusOr<Req> from `const Request&`. `encode` makes a Response from
// `const Req&` and `const Resp&`. `engine` must outlive the handler.
template <typename Async, typename Req, typename Resp, typename DecodeFn, typename EncodeFn>
Handler RpcRoute(EngineClient& engine, EngineClient::UnaryMethod<Async, Req, Resp> method,
                 DecodeFn decode, EncodeFn encode) {
  return CallRoute(engine,
                   [=](const Request& request) -> absl::StatusOr<std::shared_ptr<RouteCall>> {
                     absl::StatusOr<Req> message = decode(request);
                     if (!message.ok()) return message.status();
                     return std::make_shared<TypedRouteCall<Async, Req, Resp, EncodeFn>>(
                         method, *std::move(message), encode);
                   });
}

// Like RpcRoute, with a small JSON body and a JSON response. `body` must be a constant.
template <typename Async, typename Req, typename Resp>
Handler JsonRoute(EngineClient& engine, EngineClient::UnaryMethod<Async, Req, Resp> method,
                  const std::type_identity_t<BodyFields<Req>>& body,
                  std::type_identity_t<Json (*)(const Resp&)> to_json) {
  return RpcRoute(
      engine, method, [&body](const Request& request) { return ReadJsonBody(request, body); },
      [to_json](const Req&, const Resp& answer) { return JsonResponse(to_json(answer)); });
}

// Header that names a request which has no number of its own.
inline constexpr char kIdempotencyKey[] = "x-idempotency-key";

// Passes on the name of a training request without seq_id. Clients give every request a name, and
// some a new one for each try, so a seq_id goes before it.
template <typename Req>
void SetIdempotencyKey(const Request& request, Req& message) {
  if (message.seq_id() > 0) return;
  message.set_idempotency_key(std::string(request.HeaderValue(kIdempotencyKey)));
}

// Like JsonRoute, for training requests, which may come without seq_id.
template <typename Async, typename Req, typename Resp>
Handler TrainingJsonRoute(EngineClient& engine, EngineClient::UnaryMethod<Async, Req, Resp> method,
                          const std::type_identity_t<BodyFields<Req>>& body,
                          std::type_identity_t<Json (*)(const Resp&)> to_json) {
  const auto decode = [&body](const Request& request) -> absl::StatusOr<Req> {
    absl::StatusOr<Req> message = ReadJsonBody(request, body);
    if (message.ok()) SetIdempotencyKey(request, *message);
    return message;
  };
  return RpcRoute(engine, method, decode, [to_json](const Req&, const Resp& answer) {
    return JsonResponse(to_json(answer));
  });
}

// Always answers `body`, without a call to the engine.
Handler ConstantRoute(Json body);

}  // namespace lathe::gateway
