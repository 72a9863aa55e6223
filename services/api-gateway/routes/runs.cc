// Routes for training runs and their checkpoints.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "libs/common/strings/string_view.h"
#include "services/api-gateway/engine_client/service_clients.h"
#include "services/api-gateway/http/headers.h"
#include "services/api-gateway/http/request_addresses.h"
#include "services/api-gateway/json/session_json.h"
#include "services/api-gateway/json/weights_json.h"
#include "services/api-gateway/routes/route_table.h"
#include "services/api-gateway/routes/rpc_route.h"

namespace lathe::gateway {
namespace {

using Stub = EngineClient::AsyncStub;

constexpr int64_t kRunCheckpointsPerCall = 1000;

absl::StatusOr<v1::ListRunsRequest> DecodeListRuns(const Request& request) {
  RETURN_IF_ERROR(CheckAccessScope(request));
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/20));
  v1::ListRunsRequest message;
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

absl::StatusOr<v1::ListProjectRunsRequest> DecodeListProjectRuns(const Request& request) {
  ASSIGN_OR_RETURN(const v1::ListRunsRequest page, DecodeListRuns(request));
  v1::ListProjectRunsRequest message;
  message.set_project_id(std::string(*request.QueryValue("project_id")));
  message.set_limit(page.limit());
  message.set_offset(page.offset());
  return message;
}

Handler ListRunsHandler(EngineClient& engine) {
  constexpr auto kEncode = [](const auto& asked, const auto& answer) {
    return JsonResponse(ListRunsToJson(answer, asked.limit(), asked.offset()));
  };
  return [all = RpcRoute(engine, &Stub::ListRuns, DecodeListRuns, kEncode),
          of_project = RpcRoute(engine, &AccountsStub::ListProjectRuns, DecodeListProjectRuns,
                                kEncode)](Request& request) {
    return request.QueryValue("project_id") ? of_project(request) : all(request);
  };
}

absl::StatusOr<v1::GetRunRequest> DecodeGetRun(const Request& request) {
  RETURN_IF_ERROR(CheckAccessScope(request));
  v1::GetRunRequest message;
  message.set_training_run_id(request.path_parameters[0]);
  return message;
}

// Returns false for SDKs before 0.28, which cannot read a listing with a checkpoint of type
// external.
bool ReadsExternal(const Request& request) {
  const std::optional<SdkVersion> version = SdkVersionOf(request);
  return !version || *version >= SdkVersion{0, 28, 0};
}

absl::StatusOr<v1::ListCheckpointsRequest> DecodeListCheckpoints(const Request& request) {
  ASSIGN_OR_RETURN(const Page page, ReadPage(request, /*default_limit=*/100));
  v1::ListCheckpointsRequest message;
  message.set_without_external(!ReadsExternal(request));
  message.set_limit(page.limit);
  message.set_offset(page.offset);
  return message;
}

// Lists all checkpoints of a run, in as many calls as needed, because this listing has no pages.
Handler RunCheckpointsHandler(EngineClient& engine) {
  return [&engine](Request& request) -> asio::awaitable<absl::StatusOr<Response>> {
    v1::ListCheckpointsResponse all;
    v1::ListCheckpointsRequest question;
    question.set_training_run_id(request.path_parameters[0]);
    question.set_limit(kRunCheckpointsPerCall);
    question.set_without_external(!ReadsExternal(request));
    while (true) {
      question.set_offset(all.checkpoints_size());
      absl::StatusOr<v1::ListCheckpointsResponse> page =
          co_await engine.Call(&Stub::ListCheckpoints, question, request.api_key);
      if (!page.ok()) co_return page.status();
      all.set_total_count(page->total_count());
      all.MergeFrom(*page);
      if (page->checkpoints_size() == 0 || all.checkpoints_size() >= all.total_count()) break;
    }
    co_return JsonResponse(ListCheckpointsToJson(all, all.checkpoints_size(), 0));
  };
}

absl::StatusOr<v1::DeleteCheckpointRequest> DecodeDelete(const Request& request) {
  v1::DeleteCheckpointRequest message;
  message.set_tinker_path(CheckpointPath(request));
  return message;
}

absl::StatusOr<v1::PublishCheckpointRequest> DecodePublish(const Request& request) {
  v1::PublishCheckpointRequest message;
  message.set_tinker_path(CheckpointPath(request));
  message.set_public_(request.method == "POST");
  return message;
}

absl::StatusOr<v1::SetCheckpointTtlRequest> DecodeTtl(const Request& request) {
  ASSIGN_OR_RETURN(v1::SetCheckpointTtlRequest message, ReadJsonBody(request, kSetTtl));
  message.set_tinker_path(CheckpointPath(request));
  return message;
}

constexpr auto kEncodeNothing = [](const auto&, const auto&) { return EmptyResponse(); };

}  // namespace

std::vector<Route> RunRoutes(const RouteContext& context) {
  EngineClient& engine = context.engine;
  const std::string run = "/api/v1/training_runs/{run_id}";
  const std::string checkpoint = run + "/checkpoints/{kind}/{name}";
  const Handler publish = RpcRoute(engine, &Stub::PublishCheckpoint, DecodePublish, kEncodeNothing);
  return {
      {.method = "GET",
       .pattern = "/api/v1/training_runs",
       .tag = "checkpoints",
       .summary = "The tenant's training runs, newest first",
       .query = {"limit", "offset", "project_id"},
       .answer = "ListTrainingRunsResponse",
       .handler = ListRunsHandler(engine)},
      {.method = "GET",
       .pattern = run,
       .tag = "checkpoints",
       .summary = "One training run",
       .answer = "TrainingRun",
       .handler = RpcRoute(
           engine, &Stub::GetRun, DecodeGetRun,
           [](const auto&, const auto& answer) { return JsonResponse(RunToJson(answer.run())); })},
      {.method = "GET",
       .pattern = run + "/checkpoints",
       .tag = "checkpoints",
       .summary = "All checkpoints of a run",
       .answer = "ListCheckpointsResponse",
       .handler = RunCheckpointsHandler(engine)},
      {.method = "GET",
       .pattern = "/api/v1/checkpoints",
       .tag = "checkpoints",
       .summary = "The tenant's checkpoints, newest first",
       .query = {"limit", "offset"},
       .answer = "ListCheckpointsResponse",
       .handler = RpcRoute(engine, &Stub::ListCheckpoints, DecodeListCheckpoints,
                           [](const auto& asked, const auto& answer) {
                             return JsonResponse(
                                 ListCheckpointsToJson(answer, asked.limit(), asked.offset()));
                           })},
      {.method = "DELETE",
       .pattern = checkpoint,
       .tag = "checkpoints",
       .summary = "Delete a checkpoint",
       .handler = RpcRoute(engine, &Stub::DeleteCheckpoint, DecodeDelete, kEncodeNothing)},
      {.method = "POST",
       .pattern = checkpoint + "/publish",
       .tag = "checkpoints",
       .summary = "Let every key of this server load it",
       .handler = publish},
      {.method = "DELETE",
       .pattern = checkpoint + "/publish",
       .tag = "checkpoints",
       .summary = "Take that back",
       .handler = publish},
      {.method = "PUT",
       .pattern = checkpoint + "/ttl",
       .tag = "checkpoints",
       .summary = "Set or remove the end of its life",
       .request = "SetTtlRequest",
       .handler = RpcRoute(engine, &Stub::SetCheckpointTtl, DecodeTtl, kEncodeNothing)},
  };
}

}  // namespace lathe::gateway
