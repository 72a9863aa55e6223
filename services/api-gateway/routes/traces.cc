// Routes for traces of sessions: a signed link, and the file behind it.
#include "absl/strings/str_cat.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/http/request_addresses.h"
#include "services/api-gateway/json/trace_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

// The trace is built when the link is opened, so it is always ready.
Handler ExportHandler(const RouteContext& context) {
  return [context](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    const absl::StatusOr<std::string> base = PublicUrl(request, context.options.public_url);
    if (!base.ok()) co_return base.status();
    v1::DescribeTraceRequest question;
    question.set_session_id(request.path_parameters[0]);
    const absl::StatusOr<v1::DescribeTraceResponse> answer =
        co_await context.engine.Call(&TracesStub::DescribeTrace, question, request.api_key);
    if (!answer.ok()) co_return answer.status();
    co_return JsonResponse({{"status", "ready"},
                            {"url", absl::StrCat(*base, "/traces/", answer->token())},
                            {"error", nullptr}});
  };
}

Response TraceFile(const v1::OpenTraceRequest&, const v1::OpenTraceResponse& trace) {
  Response response;
  response.body = TraceToJson(trace);
  // Perfetto checks the content, not the name. Session ids consist of hexadecimal digits and
  // hyphens, so they are safe in a header.
  response.headers = {{"Content-Disposition",
                       absl::StrCat("attachment; filename=\"", trace.session_id(), ".json\"")},
                      {"Cache-Control", "no-store"}};
  return response;
}

}  // namespace

std::vector<Route> TraceRoutes(const RouteContext& context) {
  return {
      {.method = "GET",
       .pattern = "/api/v1/sessions/{session_id}/trace_export",
       .tag = "sessions",
       .summary = "A link to the session's trace",
       .description = "The link needs no key and ends after an hour; the file opens in Perfetto.",
       .answer = "TraceExportResponse",
       .handler = ExportHandler(context)},
      {.method = "GET",
       .pattern = "/api/v1/training_runs/{run_id}/requests",
       .tag = "sessions",
       .summary = "The run's newest requests, with the seconds of their stages",
       .description = "At most `limit` of them, 1 to 1,000, by default 200. The engine keeps the "
                      "last requests of each session, and none over a restart of its own.",
       .query = {"limit"},
       .answer = "ListRunRequestsResponse",
       .handler = RpcRoute(
           context.engine, &TracesStub::ListRunRequests,
           [](const Request& request) -> absl::StatusOr<v1::ListRunRequestsRequest> {
             ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/200));
             v1::ListRunRequestsRequest message;
             message.set_training_run_id(request.path_parameters[0]);
             message.set_limit(page.limit);
             return message;
           },
           [](const auto&, const v1::ListRunRequestsResponse& answer) {
             return JsonResponse(RunRequestsToJson(answer));
           })},
      // The link itself is the credential, because plain HTTP clients download the file.
      {.method = "GET",
       .pattern = "/traces/{token}",
       .tag = "sessions",
       .summary = "A session's trace, in the Trace Event Format",
       .answer = "TraceResponse",
       .access = Access::kPublic,
       .handler = RpcRoute(
           context.engine, &TracesStub::OpenTrace,
           [](const Request& request) {
             v1::OpenTraceRequest message;
             message.set_token(request.path_parameters[0]);
             return message;
           },
           TraceFile)},
  };
}

}  // namespace lathe::gateway
