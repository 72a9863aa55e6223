// Routes for the metrics of training runs.
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/json/metrics_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

// Reads an integer parameter of the query; nullopt: it is absent.
absl::StatusOr<std::optional<int64_t>> IntegerOf(const Request& request, const char* name) {
  const auto text = request.QueryValue(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  if (absl::SimpleAtoi(AbslView(*text), &value)) return value;
  return WithDetail(
      absl::InvalidArgumentError(absl::StrFormat("query parameter %s is not an integer", name)),
      "invalid_field", name);
}

absl::StatusOr<v1::AppendMetricsRequest> AppendOf(const Request& request) {
  ASSIGN_OR_RETURN(v1::AppendMetricsRequest message, ReadJsonBody(request, kAppendMetrics));
  message.set_training_run_id(request.path_parameters[0]);
  return message;
}

absl::StatusOr<v1::QueryMetricsRequest> QueryOf(const Request& request) {
  v1::QueryMetricsRequest message;
  message.set_training_run_id(request.path_parameters[0]);
  if (const auto names = request.QueryValue("names"); names && !names->empty()) {
    for (const absl::string_view name : absl::StrSplit(AbslView(*names), ',')) {
      message.add_names(std::string(name));
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> from_step, IntegerOf(request, "from_step"));
  if (from_step) message.set_from_step(*from_step);
  ASSIGN_OR_RETURN(const std::optional<int64_t> to_step, IntegerOf(request, "to_step"));
  if (to_step) message.set_to_step(*to_step);
  ASSIGN_OR_RETURN(const std::optional<int64_t> points, IntegerOf(request, "points"));
  if (points) message.set_max_buckets(*points);
  return message;
}

absl::StatusOr<v1::QueryMachineRequest> MachineQueryOf(const Request& request) {
  v1::QueryMachineRequest message;
  const auto group = request.QueryValue("group");
  const std::string_view of = request.QueryValue("of").value_or(group ? "group" : "service");
  if (of == "group" && group) {
    message.set_group(std::string(*group));
  } else if (of == "tenant") {
    message.set_own_tenant(true);
  } else if (of != "service") {
    return WithDetail(absl::InvalidArgumentError("query parameter of must be service or tenant, or "
                                                 "group, with a query parameter group"),
                      "invalid_field", "of");
  }
  if (const auto names = request.QueryValue("names"); names && !names->empty()) {
    for (const absl::string_view name : absl::StrSplit(AbslView(*names), ',')) {
      message.add_names(std::string(name));
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> seconds, IntegerOf(request, "seconds"));
  if (seconds) message.set_seconds(*seconds);
  ASSIGN_OR_RETURN(const std::optional<int64_t> points, IntegerOf(request, "points"));
  if (points) message.set_max_buckets(*points);
  return message;
}

Response MetricsResponse(const v1::QueryMetricsRequest& request,
                         const v1::QueryMetricsResponse& answer) {
  const bool has_buckets = !request.has_max_buckets() || request.max_buckets() > 0;
  Response response;
  response.body = MetricsToJson(answer, has_buckets);
  return response;
}

}  // namespace

std::vector<Route> MetricRoutes(const RouteContext& context) {
  return {
      {.method = "POST",
       .pattern = "/api/v1/training_runs/{run_id}/metrics",
       .tag = "metrics",
       .summary = "Append points to metrics of a run",
       .description = "Answered when they are durable. The same metric and step again replaces the "
                      "newest point; a repeated call changes nothing.",
       .request = "AppendMetricsRequest",
       .answer = "AppendMetricsResponse",
       .handler = RpcRoute(context.engine, &MetricsStub::Append, AppendOf,
                           [](const auto&, const v1::AppendMetricsResponse& answer) {
                             return JsonResponse(AppendedToJson(answer));
                           })},
      {.method = "GET",
       .pattern = "/api/v1/training_runs/{run_id}/metrics",
       .tag = "metrics",
       .summary = "Metrics of a run",
       .description = "At most `points` buckets of each metric, with minimum, maximum and mean, of "
                      "at most 64 metrics; with `points=0` the newest point of every metric.",
       .query = {"names", "from_step", "to_step", "points"},
       .answer = "QueryMetricsResponse",
       .handler = RpcRoute(context.engine, &MetricsStub::Query, QueryOf, MetricsResponse)},
      {.method = "GET",
       .pattern = "/api/v1/machine_metrics",
       .tag = "metrics",
       .summary = "Curves of the machine over time",
       .description = "Queues of the service or of the own tenant; with scope admin also a group "
                      "of workers: its memory by owner, its work, whether it is ready. A step is "
                      "15 s, counted from the Unix epoch.",
       .query = {"of", "group", "names", "seconds", "points"},
       .answer = "MachineMetricsResponse",
       .handler = RpcRoute(context.engine, &MetricsStub::QueryMachine, MachineQueryOf,
                           [](const auto&, const v1::QueryMetricsResponse& answer) {
                             Response response;
                             response.body = MachineMetricsToJson(answer);
                             return response;
                           })},
  };
}

}  // namespace lathe::gateway
