// EngineService: runs and checkpoints.
#include <optional>

#include "libs/common/status_macros.h"
#include "services/engine/rpc/await_samples_call.h"
#include "services/engine/rpc/checkpoint_files.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/find_rows.h"
#include "services/engine/rpc/get_result_call.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/watch_stream.h"

namespace lathe::engine {

EngineService::Reactor* EngineService::ListRuns(Context* context,
                                                const v1::ListRunsRequest* request,
                                                v1::ListRunsResponse* response) {
  return Read(
      context, "Engine.ListRuns", [this, request, response](const Caller& caller) -> absl::Status {
        ASSIGN_OR_RETURN(const PageBounds page, ValidatePage(request->limit(), request->offset()));
        ASSIGN_OR_RETURN(const Page<ModelRow> models,
                         runtime_.store().ListModels(caller.tenant_id, page.limit, page.offset));
        ASSIGN_OR_RETURN(*response, DescribeRuns(runtime_, caller, models));
        return absl::OkStatus();
      });
}

EngineService::Reactor* EngineService::GetRun(Context* context, const v1::GetRunRequest* request,
                                              v1::GetRunResponse* response) {
  return Read(context, "Engine.GetRun",
              [this, request, response](const Caller& caller) -> absl::Status {
                const std::string& id = request->training_run_id();
                ASSIGN_OR_RETURN(const std::optional<ModelRow> row,
                                 runtime_.store().FindModel(caller.tenant_id, id));
                if (!row) return NoSuch("training run", id, "training_run_id");
                ASSIGN_OR_RETURN(*response->mutable_run(), DescribeRun(runtime_, caller, *row));
                return absl::OkStatus();
              });
}

EngineService::Reactor* EngineService::ListCheckpoints(Context* context,
                                                       const v1::ListCheckpointsRequest* request,
                                                       v1::ListCheckpointsResponse* response) {
  return Read(context, "Engine.ListCheckpoints",
              [this, request, response](const Caller& caller) -> absl::Status {
                ASSIGN_OR_RETURN(const PageBounds page,
                                 ValidatePage(request->limit(), request->offset()));
                const std::string& run = request->training_run_id();
                if (!run.empty()) {
                  ASSIGN_OR_RETURN(const std::optional<ModelRow> row,
                                   runtime_.store().FindModel(caller.tenant_id, run));
                  if (!row) return NoSuch("training run", run, "training_run_id");
                }
                ASSIGN_OR_RETURN(const Page<CheckpointRow> checkpoints,
                                 runtime_.store().ListCheckpoints(
                                     caller.tenant_id, run, runtime_.NowNanos(),
                                     !request->without_external(), page.limit, page.offset));
                for (const CheckpointRow& row : checkpoints.rows) {
                  *response->add_checkpoints() = ToProto(row, runtime_.checkpoint_dirs());
                }
                response->set_total_count(checkpoints.total_count);
                return absl::OkStatus();
              });
}

EngineService::Reactor* EngineService::GetWeightsInfo(Context* context,
                                                      const v1::GetWeightsInfoRequest* request,
                                                      v1::GetWeightsInfoResponse* response) {
  return Read(context, "Engine.GetWeightsInfo",
              [this, request, response](const Caller& caller) -> absl::Status {
                ASSIGN_OR_RETURN(const CheckpointRow row,
                                 FindCheckpoint(runtime_, caller.tenant_id, request->tinker_path(),
                                                "tinker_path"));
                response->set_base_model(row.base_model);
                response->set_is_lora(true);
                SetLora(row.lora, response);
                return absl::OkStatus();
              });
}

EngineService::Reactor* EngineService::DeleteCheckpoint(Context* context,
                                                        const v1::DeleteCheckpointRequest* request,
                                                        v1::DeleteCheckpointResponse*) {
  return Change<engine::DeleteCheckpoint>(
      context, "Engine.DeleteCheckpoint",
      [request](const Caller& caller) -> absl::StatusOr<engine::DeleteCheckpoint> {
        RETURN_IF_ERROR(ValidateTinkerPath(request->tinker_path(), "tinker_path"));
        return engine::DeleteCheckpoint{.tenant_id = caller.tenant_id,
                                        .tinker_path = request->tinker_path(),
                                        .actor = caller.key_id};
      },
      [](const engine::Answer&) {});
}

EngineService::Reactor* EngineService::PublishCheckpoint(
    Context* context, const v1::PublishCheckpointRequest* request, v1::PublishCheckpointResponse*) {
  return Change<engine::PublishCheckpoint>(
      context, "Engine.PublishCheckpoint",
      [request](const Caller& caller) -> absl::StatusOr<engine::PublishCheckpoint> {
        RETURN_IF_ERROR(ValidateTinkerPath(request->tinker_path(), "tinker_path"));
        return engine::PublishCheckpoint{.tenant_id = caller.tenant_id,
                                         .tinker_path = request->tinker_path(),
                                         .is_public = request->public_(),
                                         .actor = caller.key_id};
      },
      [](const engine::Answer&) {});
}

EngineService::Reactor* EngineService::SetCheckpointTtl(Context* context,
                                                        const v1::SetCheckpointTtlRequest* request,
                                                        v1::SetCheckpointTtlResponse*) {
  return Change<engine::SetCheckpointTtl>(
      context, "Engine.SetCheckpointTtl",
      [request](const Caller& caller) -> absl::StatusOr<engine::SetCheckpointTtl> {
        RETURN_IF_ERROR(ValidateTinkerPath(request->tinker_path(), "tinker_path"));
        if (request->has_ttl_seconds()) RETURN_IF_ERROR(ValidateTtl(request->ttl_seconds()));
        return engine::SetCheckpointTtl{.tenant_id = caller.tenant_id,
                                        .tinker_path = request->tinker_path(),
                                        .ttl_seconds = request->ttl_seconds(),
                                        .actor = caller.key_id};
      },
      [](const engine::Answer&) {});
}

EngineService::Reactor* EngineService::DescribeArchive(Context* context,
                                                       const v1::DescribeArchiveRequest* request,
                                                       v1::DescribeArchiveResponse* response) {
  return Read(context, "Engine.DescribeArchive",
              [this, request, response](const Caller& caller) -> absl::Status {
                ASSIGN_OR_RETURN(const CheckpointRow row,
                                 FindCheckpoint(runtime_, caller.tenant_id, request->tinker_path(),
                                                "tinker_path"));
                ASSIGN_OR_RETURN(*response, archives_.Describe(row, caller.key_id));
                return audit_.RecordRead(caller, "checkpoint_download", row.tinker_path);
              });
}

EngineService::Reactor* EngineService::OpenArchive(Context* context,
                                                   const v1::OpenArchiveRequest* request,
                                                   v1::OpenArchiveResponse* response) {
  Reactor* const reactor = context->DefaultReactor();
  const absl::Status peer = CheckPeer(keys_, *context);
  const absl::StatusOr<ArchiveSigner::Link> link =
      peer.ok() ? archives_.Verify(request->token()) : peer;
  const absl::StatusOr<Caller> caller =
      link.ok() ? AuthenticateLink(keys_, link->key_id, "Engine.DescribeArchive") : link.status();
  if (caller.ok()) {
    RunRead(reads_, caller->tenant_id, reactor, [this, caller = *caller, link = *link, response] {
      return OpenLink(caller, link, response);
    });
  } else {
    reactor->Finish(ToGrpcStatus(caller.status()));
  }
  return reactor;
}

absl::Status EngineService::OpenLink(const Caller& caller, const ArchiveSigner::Link& link,
                                     v1::OpenArchiveResponse* response) {
  ASSIGN_OR_RETURN(const CheckpointRow row,
                   FindCheckpoint(runtime_, caller.tenant_id, link.tinker_path, "tinker_path"));
  ASSIGN_OR_RETURN(*response, archives_.Open(link, row));
  return absl::OkStatus();
}

EngineService::Reactor* EngineService::GetResult(Context* context,
                                                 const v1::GetResultRequest* request,
                                                 v1::GetResultResponse* response) {
  return GetResultCall::Start(runtime_, AuthenticateCall(keys_, *context, "Engine.GetResult"),
                              *request, response);
}

EngineService::Reactor* EngineService::AwaitSamples(Context* context,
                                                    const v1::AwaitSamplesRequest* request,
                                                    v1::AwaitSamplesResponse* response) {
  return AwaitSamplesCall::Start(runtime_, AuthenticateCall(keys_, *context, "Engine.AwaitSamples"),
                                 *request, response);
}

grpc::ServerBidiReactor<v1::WatchRequest, v1::WatchResponse>* EngineService::Watch(
    Context* context) {
  return WatchStream::Start(runtime_, keys_, *context);
}

}  // namespace lathe::engine
