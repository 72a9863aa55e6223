#include "services/api-gateway/routes/rpc_route.h"

#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"

namespace lathe::gateway {
namespace {

absl::Status ReadIntParameter(const Request& request, const char* name, int64_t* value) {
  const auto text = request.QueryValue(name);
  if (!text || absl::SimpleAtoi(AbslView(*text), value)) return absl::OkStatus();
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("query parameter %s is not an integer", name)),
      "invalid_field", name);
}

}  // namespace

Response JsonResponse(const Json& body) {
  Response response;
  response.body = JsonText(body);
  return response;
}

Response EmptyResponse() {
  Response response;
  response.status = 204;
  return response;
}

absl::Status CheckJsonType(const Request& request) {
  const std::string_view type = request.HeaderValue("content-type");
  if (!type.empty() && !absl::StartsWithIgnoreCase(AbslView(type), "application/json")) {
    return WithDetail(
        absl::InvalidArgumentError("Content-Type is not the application/json this path takes"),
        "unsupported_media_type");
  }
  return absl::OkStatus();
}

absl::StatusOr<Page> ReadPage(const Request& request, int64_t default_limit) {
  Page page;
  page.limit = default_limit;
  RETURN_IF_ERROR(ReadIntParameter(request, "limit", &page.limit));
  RETURN_IF_ERROR(ReadIntParameter(request, "offset", &page.offset));
  return page;
}

absl::Status CheckAccessScope(const Request& request) {
  const std::string_view scope = request.QueryValue("access_scope").value_or("owned");
  if (scope == "owned" || scope == "accessible") return absl::OkStatus();
  return WithDetail(absl::InvalidArgumentError(
                        absl::StrFormat("access_scope is '%s', expected owned or accessible",
                                        absl::CHexEscape(AbslView(scope.substr(0, 64))))),
                    "invalid_field", "access_scope");
}

absl::Status OfUnrepeatable(const absl::Status& status) {
  // The engine's own refusals have a word. gRPC's begin so if the request was never sent.
  constexpr std::string_view kNotSent = "failed to connect";
  const std::string word = ErrorCode(status);
  const std::string message(status.message());
  const bool is_broken =
      word == "unavailable" || word == "cancelled" || word == "deadline_exceeded";
  if (!is_broken || message.starts_with(kNotSent)) return status;
  return WithDetail(
      absl::DeadlineExceededError(
          message + "; the request may have been accepted, and sent again it would "
                    "be another one: a training request with seq_id or X-Idempotency-Key can "
                    "be repeated"),
      "outcome_unknown");
}

Handler CallRoute(EngineClient& engine, DecodeCall decode) {
  return [&engine, decode = std::move(decode)](
             Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<std::shared_ptr<RouteCall>> call = decode(request);
    if (!call.ok()) co_return call.status();
    // A named variable, for the same reason as in EngineClient::Call.
    EngineClient::Start start = [call = *call](EngineClient::Peer& peer,
                                               grpc::ClientContext* context,
                                               std::function<void(grpc::Status)> on_end) {
      call->Start(peer, context, std::move(on_end));
    };
    const absl::Status status = co_await engine.Run(std::move(start), CallerOf(request));
    if (!status.ok()) co_return (*call)->may_repeat() ? status : OfUnrepeatable(status);
    co_return (*call)->Encode();
  };
}

Handler ConstantRoute(Json body) {
  return [text = JsonText(body)](Request&) -> asio::awaitable<absl::StatusOr<Response>> {
    Response response;
    response.body = text;
    co_return response;
  };
}

}  // namespace lathe::gateway
