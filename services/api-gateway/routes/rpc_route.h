// A route that is one rpc: decode, call, encode.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "services/api-gateway/engine_client/engine_client.h"
#include "services/api-gateway/http/router.h"
#include "services/api-gateway/json/parse_json.h"

namespace lathe::gateway {

Response JsonResponse(const Json& body);
// 204.
Response EmptyResponse();

// The body as JSON. InvalidArgument `unsupported_media_type` for another Content-Type; an absent
// one passes.
absl::StatusOr<Json> ReadJsonBody(const Request& request);

// Query parameters `limit` and `offset`, or the defaults. InvalidArgument when they are no
// integers; the engine knows the bounds.
struct Page {
  int64_t limit = 20;
  int64_t offset = 0;
};
absl::StatusOr<Page> ReadPage(const Request& request, int64_t default_limit);

// Query parameter `access_scope`: owned or accessible, which find the same, as a tenant sees its
// own objects only. InvalidArgument for anything else.
absl::Status CheckAccessScope(const Request& request);

template <typename Req>
using Decode = std::function<absl::StatusOr<Req>(const Request& request)>;
template <typename Req, typename Resp>
using Encode = std::function<Response(const Req& asked, const Resp& answer)>;

// `engine` must outlive the handler.
template <typename Async, typename Req, typename Resp>
Handler RpcRoute(EngineClient& engine, EngineClient::UnaryMethod<Async, Req, Resp> method,
                 std::type_identity_t<Decode<Req>> decode,
                 std::type_identity_t<Encode<Req, Resp>> encode) {
  return [&engine, method, decode = std::move(decode), encode = std::move(encode)](
             Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<Req> message = decode(request);
    if (!message.ok()) co_return message.status();
    const absl::StatusOr<Resp> answer = co_await engine.Call(method, *message, request.api_key);
    if (!answer.ok()) co_return answer.status();
    co_return encode(*message, *answer);
  };
}

// As above for a JSON body and a JSON answer.
template <typename Async, typename Req, typename Resp>
Handler JsonRoute(EngineClient& engine, EngineClient::UnaryMethod<Async, Req, Resp> method,
                  std::type_identity_t<absl::StatusOr<Req> (*)(const Json&)> from_json,
                  std::type_identity_t<Json (*)(const Resp&)> to_json) {
  return RpcRoute(
      engine, method,
      [from_json](const Request& request) -> absl::StatusOr<Req> {
        const absl::StatusOr<Json> body = ReadJsonBody(request);
        if (!body.ok()) return body.status();
        return from_json(*body);
      },
      [to_json](const Req&, const Resp& answer) { return JsonResponse(to_json(answer)); });
}

// Answers at once, without the engine.
Handler ConstantRoute(Json body);

}  // namespace lathe::gateway
