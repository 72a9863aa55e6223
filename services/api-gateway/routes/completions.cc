// Route retrieve_futures: one poll for all samples of a client.
#include <boost/asio/this_coro.hpp>
#include <memory>

#include "services/api-gateway/http/client_watch.h"
#include "services/api-gateway/http/work_pool.h"
#include "services/api-gateway/json/result_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

// The body holds the ids of all results since the last poll. The limit is large, because a 413
// would end the client's sampling.
constexpr int64_t kMaxBodyBytes = 8 << 20;
// Time for the engine's answer after the wait. The longest wait of 40 s plus this is below the 45 s
// after which clients give up.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(3);

asio::awaitable<absl::StatusOr<v1::AwaitSamplesResponse>> Await(
    const RouteContext& context, Request& request, const v1::AwaitSamplesRequest& question) {
  const auto stop = std::make_shared<CallStop>();
  const auto poll = std::make_shared<LongPoll>(co_await asio::this_coro::executor);
  const LongPollRegistry::Ticket ticket(context.polls, poll, request.api_key);
  if (!ticket.status().ok()) co_return ticket.status();
  poll->OnEnd([stop] { stop->Stop(); });
  if (request.client != nullptr) request.client->Start([poll] { poll->End(); });
  absl::StatusOr<v1::AwaitSamplesResponse> answer = co_await context.engine.Call(
      &EngineClient::AsyncStub::AwaitSamples, question, request.api_key,
      absl::Milliseconds(question.wait_ms()) + kAnswerTimeout, stop.get());
  if (!answer.ok() && poll->is_over()) {
    // The poll has ended early. An empty answer with the same cursor loses nothing.
    answer = v1::AwaitSamplesResponse();
    answer->set_cursor(question.cursor());
  }
  co_return answer;
}

asio::awaitable<absl::StatusOr<v1::AwaitSamplesRequest>> ReadQuestion(const Request& request,
                                                                      absl::Duration hold) {
  co_return AwaitSamplesFromJson(request.body, hold);
}

asio::awaitable<absl::StatusOr<Response>> PollCompletions(const RouteContext& context,
                                                          Request& request) {
  if (absl::Status status = CheckJsonType(request); !status.ok()) co_return status;
  auto reading = ReadQuestion(request, context.options.poll_hold);
  const bool is_large = request.body.size() >= kLargeBodyBytes && request.pool != nullptr;
  absl::StatusOr<v1::AwaitSamplesRequest> question = absl::UnknownError("not read");
  if (is_large) {
    question = co_await request.pool->Run(std::move(reading));
  } else {
    question = co_await std::move(reading);
  }
  if (!question.ok()) co_return question.status();
  request.FreeBody();
  const absl::StatusOr<v1::AwaitSamplesResponse> answer =
      co_await Await(context, request, *question);
  if (!answer.ok()) co_return answer.status();
  co_return JsonResponse(AwaitSamplesToJson(*answer));
}

}  // namespace

std::vector<Route> CompletionRoutes(const RouteContext& context) {
  return {
      {.method = "POST",
       .pattern = "/api/v1/retrieve_futures",
       .tag = "futures",
       .summary = "Which samples of a client have ended",
       .description =
           "Held until one has, 20 s at most by default. Each is listed, in the order of their "
           "ends, until it is acknowledged with a cursor or its result was fetched with "
           "retrieve_future. An unknown sampling session is one of which nothing has ended.",
       .request = "RetrieveFuturesRequest",
       .answer = "RetrieveFuturesResponse",
       .errors = {{429, "Too many polls of this key wait."}},
       .max_body_bytes = kMaxBodyBytes,
       .stays_on_connection = true,
       .handler = [context](Request& request) { return PollCompletions(context, request); }},
  };
}

}  // namespace lathe::gateway
