// EngineService: models, training and sampling; everything that becomes a future.
#include <optional>

#include "libs/common/errors.h"
#include "libs/common/rpc/status.h"
#include "libs/common/status_macros.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/checkpoint_files.h"
#include "services/engine/rpc/engine_service.h"
#include "services/engine/rpc/find_rows.h"
#include "services/engine/rpc/row_convert.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

void Fill(const engine::Answer& answer, v1::SubmitResponse* response) {
  response->set_request_id(answer.id);
}

void Fill(const engine::Answer& answer, v1::SampleSubmitResponse* response) {
  response->set_request_id(answer.id);
  for (const std::string& id : answer.sample_sequence_ids) response->add_sample_sequence_ids(id);
}

absl::Status CheckSamplerTarget(Runtime& runtime, const v1::CreateSamplingSessionRequest& request) {
  RETURN_IF_ERROR(ValidateSeq(request.sampling_session_seq_id(), "sampling_session_seq_id"));
  // model_path takes precedence; a base model given with it is only informational.
  if (!request.model_path().empty()) return ValidateTinkerPath(request.model_path(), "model_path");
  if (request.base_model().empty()) {
    return Invalid("invalid_field", "base_model", "one of base_model and model_path must be given");
  }
  return FindServedModel(runtime, request.base_model()).status();
}

// The core decides whether there is such a checkpoint.
absl::Status RecordLoad(Runtime& runtime, AuditLog& audit, const Caller& reader,
                        const Caller& caller, const std::string& path) {
  ASSIGN_OR_RETURN(const std::optional<CheckpointRow> row,
                   runtime.store().FindCheckpoint(reader.tenant_id, path, runtime.NowNanos()));
  return row ? RecordRead(audit, reader, caller, *row, "load") : absl::OkStatus();
}

}  // namespace

template <typename Request, typename Response>
EngineService::Reactor* EngineService::SubmitRequest(Context* context, RpcAccess access,
                                                     const Request* request, Response* response) {
  Reactor* const reactor = context->DefaultReactor();
  const auto run = [this, context, reactor, access, request, response] {
    RunChange<Submit>(
        runtime_, keys_, context, reactor, access,
        [this, context, request](const Caller& caller) {
          RecordDeliveries(runtime_, caller, *context);
          return builder_.Build(caller.tenant_id, *request);
        },
        [response](const engine::Answer& answer) { Fill(answer, response); });
  };
  if (static_cast<int64_t>(request->ByteSizeLong()) <= kInlineBodyBytes) {
    run();
  } else if (!body_threads_.TryRun(run)) {
    reactor->Finish(ToGrpcStatus(
        WithDetail(absl::ResourceExhaustedError("too many large requests are being taken in"),
                   "too_many_calls")));
  }
  return reactor;
}

EngineService::Reactor* EngineService::CreateModel(Context* context,
                                                   const v1::CreateModelRequest* request,
                                                   v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.CreateModel", request, response);
}

EngineService::Reactor* EngineService::UnloadModel(Context* context,
                                                   const v1::UnloadModelRequest* request,
                                                   v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.UnloadModel", request, response);
}

EngineService::Reactor* EngineService::ForwardBackward(Context* context,
                                                       const v1::ForwardBackwardRequest* request,
                                                       v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.ForwardBackward", request, response);
}

EngineService::Reactor* EngineService::OptimStep(Context* context,
                                                 const v1::OptimStepRequest* request,
                                                 v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.OptimStep", request, response);
}

EngineService::Reactor* EngineService::SaveWeights(Context* context,
                                                   const v1::SaveWeightsRequest* request,
                                                   v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.SaveWeights", request, response);
}

EngineService::Reactor* EngineService::SaveWeightsForSampler(
    Context* context, const v1::SaveWeightsForSamplerRequest* request,
    v1::SubmitResponse* response) {
  return SubmitRequest(context, "Engine.SaveWeightsForSampler", request, response);
}

EngineService::Reactor* EngineService::LoadWeights(Context* context,
                                                   const v1::LoadWeightsRequest* request,
                                                   v1::SubmitResponse* response) {
  return ReadAndChangeCall<Submit>(
      reads_, runtime_, keys_, context, "Engine.LoadWeights",
      [this, request](const Caller& caller) -> absl::StatusOr<Submit> {
        ASSIGN_OR_RETURN(const std::optional<Caller> reader,
                         AuthenticateReader(keys_, request->weights_access_token(), Scope::kTrain));
        ASSIGN_OR_RETURN(Submit submit, builder_.Build(caller.tenant_id, *request,
                                                       reader ? reader->tenant_id : std::string()));
        if (reader && !submit.invalid) {
          RETURN_IF_ERROR(RecordLoad(runtime_, audit_, *reader, caller, request->path()));
        }
        return submit;
      },
      [response](const engine::Answer& answer) { Fill(answer, response); });
}

EngineService::Reactor* EngineService::Sample(Context* context, const v1::SampleRequest* request,
                                              v1::SampleSubmitResponse* response) {
  return SubmitRequest(context, "Engine.Sample", request, response);
}

EngineService::Reactor* EngineService::GetModel(Context* context,
                                                const v1::GetModelRequest* request,
                                                v1::GetModelResponse* response) {
  return Read(
      context, "Engine.GetModel", [this, request, response](const Caller& caller) -> absl::Status {
        const std::string& id = request->model_id();
        ASSIGN_OR_RETURN(const ModelRow row, FindModel(runtime_, caller.tenant_id, id));
        const std::optional<BaseModelRow> base = runtime_.directory().FindBaseModel(row.base_model);
        response->set_model_id(id);
        response->set_base_model(row.base_model);
        response->set_tokenizer_id(base ? base->tokenizer_id : "");
        response->set_arch(base ? base->arch : "");
        SetLora(row.lora, response);
        return absl::OkStatus();
      });
}

EngineService::Reactor* EngineService::CreateSamplingSession(
    Context* context, const v1::CreateSamplingSessionRequest* request,
    v1::CreateSamplingSessionResponse* response) {
  return Change<engine::CreateSamplingSession>(
      context, "Engine.CreateSamplingSession",
      [this, request](const Caller& caller) -> absl::StatusOr<engine::CreateSamplingSession> {
        RETURN_IF_ERROR(CheckSamplerTarget(runtime_, *request));
        return engine::CreateSamplingSession{
            .tenant_id = caller.tenant_id,
            .session_id = request->session_id(),
            .sampling_session_seq_id = request->sampling_session_seq_id(),
            .base_model = request->base_model(),
            .model_path = request->model_path()};
      },
      [response](const engine::Answer& answer) { response->set_sampling_session_id(answer.id); });
}

EngineService::Reactor* EngineService::GetSampler(Context* context,
                                                  const v1::GetSamplerRequest* request,
                                                  v1::GetSamplerResponse* response) {
  return Read(context, "Engine.GetSampler",
              [this, request, response](const Caller& caller) -> absl::Status {
                const std::string& id = request->sampling_session_id();
                ASSIGN_OR_RETURN(const SamplerRow row, FindSampler(runtime_, caller.tenant_id, id));
                response->set_sampler_id(id);
                response->set_base_model(row.base_model);
                response->set_model_path(row.model_path);
                return absl::OkStatus();
              });
}

EngineService::Reactor* EngineService::JoinSamplingSession(
    Context* context, const v1::JoinSamplingSessionRequest* request,
    v1::JoinSamplingSessionResponse* response) {
  return Change<engine::JoinSamplingSession>(
      context, "Engine.JoinSamplingSession",
      [request](const Caller& caller) -> absl::StatusOr<engine::JoinSamplingSession> {
        return engine::JoinSamplingSession{.tenant_id = caller.tenant_id,
                                           .sampling_session_id = request->sampling_session_id()};
      },
      [response](const engine::Answer& answer) {
        response->set_client_counter(answer.client_counter);
      });
}

EngineService::Reactor* EngineService::CancelSample(Context* context,
                                                    const v1::CancelSampleRequest* request,
                                                    v1::CancelSampleResponse* /*response*/) {
  return Change<engine::CancelSample>(
      context, "Engine.CancelSample",
      [request](const Caller& caller) -> absl::StatusOr<engine::CancelSample> {
        return engine::CancelSample{.tenant_id = caller.tenant_id,
                                    .request_id = request->request_id()};
      },
      [](const engine::Answer&) {});
}

}  // namespace lathe::engine
