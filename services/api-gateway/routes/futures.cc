// retrieve_future: the long poll.
#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "libs/common/fail_point/fail_point.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/json/field_reader.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"
#include "services/api-gateway/wire/result_wire.h"

namespace lathe::gateway {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// Between tries while the engine has a result but cannot give it.
constexpr std::chrono::milliseconds kFetchPause{200};
// How long after the hold answers of the engine may still come, all of them together. With the
// longest hold of 40 s below the 45 s at which clients give up.
constexpr std::chrono::seconds kLastLookTimeout(3);

// Unsubscribes when it goes out of scope.
class Subscription {
 public:
  Subscription(WatchClient& watch, const std::string& request_id, const std::string& api_key,
               std::shared_ptr<HeldPoll> poll)
      : watch_(watch),
        ticket_(watch.Subscribe(
            request_id, api_key,
            [poll = std::move(poll)](const WatchUpdate& update) { poll->PostUpdate(update); })) {}
  ~Subscription() { watch_.Unsubscribe(ticket_); }
  void AskAgain() const { watch_.AskAgain(ticket_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  WatchClient& watch_;
  const int64_t ticket_;
};

absl::StatusOr<std::string> ReadRequestId(const Request& request) {
  ASSIGN_OR_RETURN(const Json body, ReadJsonBody(request));
  FieldReader in(body);
  std::string request_id = in.String("request_id");
  // A permission that is never used: results come whole (tinker-api 11.4).
  in.BoolOr("allow_metadata_only", false);
  RETURN_IF_ERROR(in.status());
  return request_id;
}

Response ProtobufResponse(const google::protobuf::MessageLite& message) {
  Response response;
  response.content_type = "application/x-protobuf";
  response.body = message.SerializeAsString();
  return response;
}

Response EncodeResult(const Request& request, v1::OperationResult result) {
  const bool wants_protobuf =
      request.HeaderValue("accept").find("application/x-protobuf") != std::string_view::npos;
  if (wants_protobuf && result.has_forward_backward()) {
    return ProtobufResponse(ToTinker(std::move(*result.mutable_forward_backward())));
  }
  if (wants_protobuf && result.has_sample()) {
    return ProtobufResponse(ToTinker(std::move(*result.mutable_sample())));
  }
  return JsonResponse(ResultToJson(result));
}

// Never a 5xx here: the SDK would poll again at once, for ever.
bool IsTransient(const absl::Status& status) { return HttpStatus(status) >= 500; }

absl::Duration TimeLeft(SteadyTime deadline) {
  const auto left = deadline + kLastLookTimeout - std::chrono::steady_clock::now();
  return std::max(absl::FromChrono(left), absl::ZeroDuration());
}

// Unset: nothing final yet.
using FinalAnswer = std::optional<absl::StatusOr<Response>>;

// Notes in `poll` why the request waits, if it does.
asio::awaitable<FinalAnswer> Fetch(EngineClient& engine, const Request& request,
                                   const std::string& request_id, HeldPoll& poll,
                                   SteadyTime deadline) {
  v1::GetResultRequest question;
  question.set_request_id(request_id);
  absl::StatusOr<v1::GetResultResponse> answer = co_await engine.Call(
      &EngineClient::AsyncStub::GetResult, question, request.api_key, TimeLeft(deadline));
  if (answer.ok() && answer->has_result()) {
    co_return EncodeResult(request, std::move(*answer->mutable_result()));
  }
  if (answer.ok()) poll.NoteQueue(answer->queue_state(), answer->queue_state_reason());
  if (answer.ok() || IsTransient(answer.status())) co_return std::nullopt;
  co_return answer.status();
}

Response TryAgain(const std::string& request_id, const HeldPoll& poll, const WatchClient& watch) {
  if (!watch.is_connected()) {
    return JsonResponse(TryAgainToJson(request_id, v1::QUEUE_STATE_PAUSED_CAPACITY,
                                       "the engine is not reachable; nothing accepted is lost"));
  }
  return JsonResponse(TryAgainToJson(request_id, poll.queue_state(), poll.queue_state_reason()));
}

// Waits until the engine has something final to say, the deadline, or the end of the poll.
asio::awaitable<FinalAnswer> Await(const RouteContext& context, const Request& request,
                                   const std::string& request_id,
                                   const std::shared_ptr<HeldPoll>& poll, SteadyTime deadline) {
  while (!poll->is_over() && std::chrono::steady_clock::now() < deadline) {
    poll->Rearm();
    {
      const Subscription subscription(context.watch, request_id, request.api_key, poll);
      co_await poll->Sleep(deadline);
      // The client is told how things stand now, not when it began to wait. Over the stream: there
      // may be thousands of polls that end together.
      if (!poll->is_settled() && !poll->is_over() && context.watch.is_connected()) {
        subscription.AskAgain();
        co_await poll->AwaitNews(deadline + kLastLookTimeout);
      }
    }
    if (!poll->is_settled()) break;
    FailPoint("gateway.poll.woken");
    if (poll->result() != nullptr) co_return EncodeResult(request, *poll->result());
    FinalAnswer answer = co_await Fetch(context.engine, request, request_id, *poll, deadline);
    // Past the hold, that was the last look.
    if (answer || std::chrono::steady_clock::now() >= deadline) co_return answer;
    co_await poll->Pause(kFetchPause, deadline);
  }
  co_return std::nullopt;
}

asio::awaitable<absl::StatusOr<Response>> Poll(const RouteContext& context, Request& request) {
  const absl::StatusOr<std::string> request_id = ReadRequestId(request);
  if (!request_id.ok()) co_return request_id.status();
  const SteadyTime deadline =
      std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(context.options.poll_hold);
  const auto poll = std::make_shared<HeldPoll>(co_await asio::this_coro::executor);
  const PollGate::Ticket ticket(context.polls, poll);
  if (request.client != nullptr) request.client->Start([poll] { poll->End(); });
  FinalAnswer answer;
  // The subscription under the other key would not check this one.
  if (context.watch.IsWatchedByOther(*request_id, request.api_key)) {
    answer = co_await Fetch(context.engine, request, *request_id, *poll, deadline);
  }
  if (!answer && std::chrono::steady_clock::now() < deadline) {
    answer = co_await Await(context, request, *request_id, poll, deadline);
  }
  if (answer) co_return *std::move(answer);
  co_return TryAgain(*request_id, *poll, context.watch);
}

}  // namespace

std::vector<Route> FutureRoutes(const RouteContext& context) {
  return {
      {.method = "POST",
       .pattern = "/api/v1/retrieve_future",
       .access = Access::kKeyUnlessEngineDown,
       .max_body_bytes = 64 << 10,
       .handler = [context](Request& request) { return Poll(context, request); }},
  };
}

}  // namespace lathe::gateway
