// Route retrieve_future: the long poll.
#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "libs/common/fail_point/fail_point.h"
#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/http/error_response.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"
#include "services/api-gateway/wire/wire.h"

namespace lathe::gateway {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// Pause between attempts while the engine has a result but cannot return it.
constexpr std::chrono::milliseconds kFetchPause{200};
// Time after the hold within which all remaining answers of the engine must arrive. The longest
// hold of 40 s plus this is below the 45 s after which clients give up.
constexpr std::chrono::seconds kLastLookTimeout(3);

// Unsubscribes when it goes out of scope.
class Subscription {
 public:
  Subscription(WatchClient& watch, const std::string& request_id, const std::string& api_key,
               std::shared_ptr<LongPoll> poll)
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

// Encodes a result, and acknowledges it once its answer was written whole. Only the client knows
// what it has received; this comes closest.
Response AnswerWith(v1::OperationResult result, const Request& request,
                    const std::string& request_id, const RouteContext& context) {
  const bool has_failed = result.has_error();
  Response response = EncodeResult(request, std::move(result));
  response.request_id = request_id;
  response.on_written = [&watch = context.watch, &engine = context.engine, has_failed, request_id,
                         api_key = request.api_key] {
    if (has_failed) engine.NoteDelivered(request_id, api_key);
    watch.Acknowledge(request_id, api_key);
  };
  return response;
}

// Returns true for errors that would be answered with a 5xx. This route avoids a 5xx, because the
// SDK would poll again at once without end.
bool IsTransient(const absl::Status& status) { return HttpStatus(status) >= 500; }

absl::Duration TimeLeft(SteadyTime deadline) {
  const auto left = deadline + kLastLookTimeout - std::chrono::steady_clock::now();
  return std::max(absl::FromChrono(left), absl::ZeroDuration());
}

// Unset if there is no final answer yet.
using FinalAnswer = std::optional<absl::StatusOr<Response>>;

// Asks the engine for the result. If the request waits, records the reason in `poll`.
asio::awaitable<FinalAnswer> Fetch(const RouteContext& context, const Request& request,
                                   const std::string& request_id, LongPoll& poll,
                                   SteadyTime deadline) {
  v1::GetResultRequest question;
  question.set_request_id(request_id);
  question.set_acknowledges(true);
  absl::StatusOr<v1::GetResultResponse> answer = co_await context.engine.Call(
      &EngineClient::AsyncStub::GetResult, question, CallerOf(request), TimeLeft(deadline));
  if (answer.ok() && answer->has_result()) {
    co_return AnswerWith(std::move(*answer->mutable_result()), request, request_id, context);
  }
  if (answer.ok()) poll.RecordQueueState(answer->queue_state(), answer->queue_state_reason());
  if (answer.ok() || IsTransient(answer.status())) co_return std::nullopt;
  co_return answer.status();
}

Response TryAgain(const std::string& request_id, const LongPoll& poll, const WatchClient& watch) {
  Response response =
      watch.is_connected()
          ? JsonResponse(TryAgainToJson(request_id, poll.queue_state(), poll.queue_state_reason()))
          : JsonResponse(TryAgainToJson(request_id, v1::QUEUE_STATE_PAUSED_CAPACITY,
                                        "the engine is not reachable; nothing accepted is lost"));
  response.request_id = request_id;
  return response;
}

// Waits until the engine has a final answer, the deadline passes or the poll ends.
asio::awaitable<FinalAnswer> Await(const RouteContext& context, const Request& request,
                                   const std::string& request_id,
                                   const std::shared_ptr<LongPoll>& poll, SteadyTime deadline) {
  while (!poll->is_over() && std::chrono::steady_clock::now() < deadline) {
    poll->Rearm();
    {
      const Subscription subscription(context.watch, request_id, request.api_key, poll);
      co_await poll->Sleep(deadline);
      // Asks for the queue state as of now, because the known state may be old. The stream carries
      // the question, because thousands of polls may end together.
      if (!poll->is_settled() && !poll->is_over() && context.watch.is_connected()) {
        subscription.AskAgain();
        co_await poll->AwaitUpdate(deadline + kLastLookTimeout);
      }
    }
    if (!poll->is_settled()) break;
    FailPoint("gateway.poll.woken");
    if (poll->result() != nullptr) {
      co_return AnswerWith(*poll->result(), request, request_id, context);
    }
    FinalAnswer answer = co_await Fetch(context, request, request_id, *poll, deadline);
    // After the hold there is no further attempt.
    if (answer || std::chrono::steady_clock::now() >= deadline) co_return answer;
    co_await poll->Pause(kFetchPause, deadline);
  }
  co_return std::nullopt;
}

asio::awaitable<absl::StatusOr<Response>> Poll(const RouteContext& context, Request& request) {
  const absl::StatusOr<v1::GetResultRequest> question = ReadJsonBody(request, kRetrieveFuture);
  if (!question.ok()) co_return question.status();
  // Thousands of polls wait at a time, without their bodies.
  request.FreeBody();
  request.memory.Release();
  const std::string& request_id = question->request_id();
  const SteadyTime deadline =
      std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(context.options.poll_hold);
  const auto poll = std::make_shared<LongPoll>(co_await asio::this_coro::executor);
  const LongPollRegistry::Ticket ticket(context.polls, poll, request.api_key);
  if (!ticket.status().ok()) co_return ticket.status();
  if (request.client != nullptr) request.client->Start([poll] { poll->End(); });
  FinalAnswer answer;
  // A subscription under another key does not check this key, but the engine does.
  if (context.watch.IsWatchedByOther(request_id, request.api_key)) {
    answer = co_await Fetch(context, request, request_id, *poll, deadline);
  }
  if (!answer && std::chrono::steady_clock::now() < deadline) {
    answer = co_await Await(context, request, request_id, poll, deadline);
  }
  if (answer) co_return *std::move(answer);
  co_return TryAgain(request_id, *poll, context.watch);
}

}  // namespace

std::vector<Route> FutureRoutes(const RouteContext& context) {
  return {
      {.method = "POST",
       .pattern = "/api/v1/retrieve_future",
       .tag = "futures",
       .summary = "The result of an operation",
       .description = "Held until the result is there, 20 s at most by default.",
       .request = "RetrieveFutureRequest",
       .answer = "RetrieveFutureResponse",
       .errors = {{410, "The result is past its retention."},
                  {429, "Too many polls of this key wait."}},
       .access = Access::kKeyUnlessEngineDown,
       .max_body_bytes = 64 << 10,
       .stays_on_connection = true,
       .handler = [context](Request& request) { return Poll(context, request); }},
  };
}

}  // namespace lathe::gateway
