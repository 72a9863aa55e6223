#include "absl/strings/str_format.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

absl::StatusOr<v1::CreateSessionRequest> DecodeCreate(const Request& request) {
  ASSIGN_OR_RETURN(v1::CreateSessionRequest message, ReadJsonBody(request, kCreateSession));
  // The SDK obeys parallel_fwdbwd_chunks: false, so it sends in order. Other clients may send in
  // any order.
  const bool is_sdk = !request.HeaderValue("x-stainless-package-version").empty();
  message.set_ordering(is_sdk ? v1::SESSION_ORDERING_SERIAL : v1::SESSION_ORDERING_CONCURRENT);
  return message;
}

Handler HeartbeatHandler(EngineClient& engine) {
  return [&engine](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<v1::HeartbeatRequest> message = ReadJsonBody(request, kHeartbeat);
    if (!message.ok()) co_return message.status();
    const absl::StatusOr<v1::HeartbeatResponse> answer =
        co_await engine.Call(&Stub::Heartbeat, *message, request.api_key, absl::Seconds(8));
    if (!answer.ok()) co_return answer.status();
    if (answer->finished()) {
      // 410 ends the SDK's heartbeat loop quietly.
      co_return WithDetail(
          absl::OutOfRangeError(absl::StrFormat("session %s has finished", message->session_id())),
          "session_finished", "session_id");
    }
    co_return JsonResponse({{"type", "session_heartbeat"}});
  };
}

absl::StatusOr<v1::FinishSessionRequest> DecodeFinish(const Request& request) {
  v1::FinishSessionRequest message;
  if (request.body.empty()) {
    ASSIGN_OR_RETURN(message, ReadBody("{}", kFinishSession));
  } else {
    ASSIGN_OR_RETURN(message, ReadJsonBody(request, kFinishSession));
  }
  message.set_session_id(request.path_parameters[0]);
  return message;
}

absl::StatusOr<v1::ListSessionsRequest> DecodeList(const Request& request) {
  RETURN_IF_ERROR(CheckAccessScope(request));
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/20));
  v1::ListSessionsRequest message;
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

absl::StatusOr<v1::GetSessionRequest> DecodeGet(const Request& request) {
  RETURN_IF_ERROR(CheckAccessScope(request));
  v1::GetSessionRequest message;
  message.set_session_id(request.path_parameters[0]);
  return message;
}

}  // namespace

std::vector<Route> SessionRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  return {
      {.method = "POST",
       .pattern = "/api/v1/create_session",
       .tag = "sessions",
       .summary = "Begin a session",
       .request = "CreateSessionRequest",
       .answer = "CreateSessionResponse",
       .carries_notices = true,
       .handler = RpcRoute(engine, &Stub::CreateSession, DecodeCreate,
                           [](const auto&, const auto& answer) {
                             return JsonResponse(CreateSessionToJson(answer));
                           })},
      {.method = "POST",
       .pattern = "/api/v1/session_heartbeat",
       .tag = "sessions",
       .summary = "Keep a session alive",
       .request = "SessionHeartbeatRequest",
       .answer = "SessionHeartbeatResponse",
       .errors = {{410, "The session has finished."}},
       .handler = HeartbeatHandler(engine)},
      {.method = "GET",
       .pattern = "/api/v1/sessions",
       .tag = "sessions",
       .summary = "The tenant's sessions, newest first",
       .query = {"limit", "offset"},
       .answer = "ListSessionsResponse",
       .handler = RpcRoute(engine, &Stub::ListSessions, DecodeList,
                           [](const auto& asked, const auto& answer) {
                             return JsonResponse(
                                 ListSessionsToJson(answer, asked.limit(), asked.offset()));
                           })},
      {.method = "GET",
       .pattern = "/api/v1/sessions/{session_id}",
       .tag = "sessions",
       .summary = "One session",
       .answer = "SessionResponse",
       .handler = RpcRoute(
           engine, &Stub::GetSession, DecodeGet,
           [](const auto&, const auto& answer) { return JsonResponse(GetSessionToJson(answer)); })},
      {.method = "POST",
       .pattern = "/api/v1/sessions/{session_id}/finish",
       .tag = "sessions",
       .summary = "End a session; the first reason stays",
       .description = "Queued work is completed first; models are freed, checkpoints stay.",
       .request = "FinishSessionRequest",
       .answer = "Object",
       .handler = RpcRoute(engine, &Stub::FinishSession, DecodeFinish,
                           [](const auto&, const auto&) { return JsonResponse(Json::object()); })},
  };
}

}  // namespace lathe::gateway
