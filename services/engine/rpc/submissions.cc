#include "services/engine/rpc/submissions.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/engine/ledger/gradient_window.h"
#include "services/engine/rpc/checkpoint_files.h"
#include "services/engine/rpc/content_hash.h"
#include "services/engine/rpc/find_rows.h"
#include "services/engine/rpc/packed_values.h"
#include "services/engine/rpc/validate_lora.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validate_sampling.h"
#include "services/engine/rpc/validate_training.h"
#include "services/engine/rpc/validation.h"
#include "services/engine/runtime/result_encoder.h"

namespace lathe::engine {
namespace {

ModelLimits LimitsOf(const BaseModelRow& row) {
  return {.max_context_length = row.max_context_length, .vocab_size = row.vocab_size};
}

absl::StatusOr<ModelLimits> LimitsOfBase(Runtime& runtime, const std::string& base_model) {
  const std::optional<BaseModelRow> row = runtime.directory().FindBaseModel(base_model);
  if (row) return LimitsOf(*row);
  return absl::UnavailableError(absl::StrFormat("base model '%s' is not known yet", base_model));
}

absl::StatusOr<ModelLimits> LimitsOfModel(Runtime& runtime, const std::string& tenant_id,
                                          const std::string& model_id) {
  ASSIGN_OR_RETURN(const ModelRow row, FindModel(runtime, tenant_id, model_id));
  return LimitsOfBase(runtime, row.base_model);
}

absl::StatusOr<ModelLimits> LimitsOfSampler(Runtime& runtime, const std::string& tenant_id,
                                            const std::string& sampling_session_id) {
  ASSIGN_OR_RETURN(const SamplerRow row, FindSampler(runtime, tenant_id, sampling_session_id));
  return LimitsOfBase(runtime, row.base_model);
}

template <typename Request>
Submit Start(const std::string& tenant_id, const std::string& owner_id, int64_t seq_id,
             OperationKind kind, const Request& request) {
  Submit submit;
  submit.tenant_id = tenant_id;
  submit.owner_id = owner_id;
  submit.op_class = TraitsOf(kind).op_class;
  submit.seq_id = seq_id;
  submit.kind = kind;
  if constexpr (requires { request.idempotency_key(); }) {
    submit.idempotency_key = request.idempotency_key();
  }
  submit.content_hash = ContentHash(request);
  return submit;
}

// Most datums that the SDK sends in one request.
constexpr int kMaxDatumsOfSdk = 1024;

int64_t BatchBytes(const v1::ForwardBackwardRequest& request) {
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  const bool may_be_split = request.data_size() >= kMaxDatumsOfSdk || !request.malformed().empty();
  return may_be_split ? std::max(bytes, kSplitBatchBytes) : bytes;
}

// Stores a valid message as the body of its request. If the tenant's limits have no room for it,
// the core would refuse the request: its body then costs no write.
template <typename Request>
absl::StatusOr<PayloadRef> StoreBody(Runtime& runtime, const std::string& tenant_id,
                                     const Request& request, int64_t tokens) {
  PayloadRef payload{.bytes = static_cast<int64_t>(request.ByteSizeLong()), .tokens = tokens};
  if (!runtime.tenant_rooms().RoomOf(tenant_id).Allows(payload, runtime.NowNanos())) {
    payload.is_withheld = true;
    return payload;
  }
  return runtime.bodies().Add(request.SerializeAsString(), tokens);
}

template <typename Request>
absl::Status ValidateTrainKey(const Request& request) {
  RETURN_IF_ERROR(ValidateTrainSeq(request.seq_id()));
  return ValidateText(request.idempotency_key(), kMaxIdempotencyKeyBytes, "idempotency_key");
}

void SetInvalid(Submit& submit, const absl::Status& status) {
  if (!status.ok()) submit.invalid = ToErrorInfo(status);
}

absl::StatusOr<CreateModelArgs> MakeCreateModelArgs(Runtime& runtime,
                                                    const v1::CreateModelRequest& request,
                                                    const LoraDefaults& lora) {
  ASSIGN_OR_RETURN(const BaseModelRow base, FindServedModel(runtime, request.base_model()));
  RETURN_IF_ERROR(ValidateOptimizerType(request.optimizer_type()));
  CreateModelArgs args;
  args.base_model = base.name;
  ASSIGN_OR_RETURN(args.user_metadata, ValidateMetadata(request.user_metadata()));
  ASSIGN_OR_RETURN(args.lora, ValidateLora(request.lora_config(), args.user_metadata, lora, base));
  args.has_seed = request.lora_config().has_seed();
  return args;
}

absl::StatusOr<OptimStepArgs> MakeOptimStepArgs(const v1::OptimStepRequest& request) {
  if (!request.has_adam_params()) {
    const std::string& type = request.other_optimizer_type();
    RETURN_IF_ERROR(ValidateOptimizerType(type.empty() ? "(none)" : type));
    return Invalid("bad_optimizer", "adam_params", "adam_params is missing");
  }
  RETURN_IF_ERROR(ValidateAdam(request.adam_params()));
  return OptimStepArgs{.adam_params = request.adam_params().SerializeAsString()};
}

absl::StatusOr<SaveArgs> MakeSaveArgs(const v1::SaveWeightsRequest& request) {
  RETURN_IF_ERROR(ValidateName(request.name(), "path"));
  if (request.has_ttl_seconds()) RETURN_IF_ERROR(ValidateTtl(request.ttl_seconds()));
  SaveArgs args;
  args.name = request.name();
  args.ttl_seconds = request.ttl_seconds();
  args.overwrite = request.overwrite();
  ASSIGN_OR_RETURN(args.user_metadata, ValidateMetadata(request.user_metadata()));
  return args;
}

absl::StatusOr<SaveArgs> MakeSaveArgs(const v1::SaveWeightsForSamplerRequest& request) {
  if (request.has_name() == request.has_sampling_session_seq_id()) {
    return Invalid("invalid_field", "path",
                   "exactly one of path and sampling_session_seq_id must be given");
  }
  const bool known_kind =
      request.kind().empty() || request.kind() == "snapshot" || request.kind() == "inflight";
  if (!known_kind) {
    return Invalid("invalid_field", "kind",
                   absl::StrFormat("kind is '%s', expected snapshot or inflight", request.kind()));
  }
  const bool inflight = request.kind() == "inflight";
  if (inflight && request.has_name()) {
    return Invalid("invalid_field", "kind",
                   "kind is 'inflight', a save under a name takes snapshot only");
  }
  SaveArgs args;
  args.inflight = inflight;
  if (request.has_name()) {
    RETURN_IF_ERROR(ValidateName(request.name(), "path"));
    args.name = request.name();
  } else {
    RETURN_IF_ERROR(ValidateSeq(request.sampling_session_seq_id(), "sampling_session_seq_id"));
    args.sampling_session_seq_id = request.sampling_session_seq_id();
  }
  if (request.has_ttl_seconds()) RETURN_IF_ERROR(ValidateTtl(request.ttl_seconds()));
  args.ttl_seconds = request.ttl_seconds();
  ASSIGN_OR_RETURN(args.user_metadata, ValidateMetadata(request.user_metadata()));
  return args;
}

absl::StatusOr<SaveArgs> MakeSaveArgs(const v1::SaveWeightsExternalRequest& request) {
  RETURN_IF_ERROR(ValidateName(request.name(), "path"));
  if (request.has_ttl_seconds()) RETURN_IF_ERROR(ValidateTtl(request.ttl_seconds()));
  SaveArgs args;
  args.name = request.name();
  args.ttl_seconds = request.ttl_seconds();
  args.age_recipients = {request.age_encryption_recipients().begin(),
                         request.age_encryption_recipients().end()};
  return args;
}

absl::StatusOr<LoadArgs> MakeLoadArgs(Runtime& runtime, const v1::LoadWeightsRequest& request) {
  RETURN_IF_ERROR(ValidateTinkerPath(request.path(), "path"));
  RETURN_IF_ERROR(ValidateOptimizerType(request.optimizer_type()));
  LoadArgs args;
  args.path = request.path();
  args.with_optimizer = request.optimizer();
  args.creates_model = request.has_model_seq_id();
  if (!request.base_model().empty()) {
    ASSIGN_OR_RETURN(const BaseModelRow base, FindServedModel(runtime, request.base_model()));
    args.base_model = base.name;
  }
  ASSIGN_OR_RETURN(args.user_metadata, ValidateMetadata(request.user_metadata()));
  ASSIGN_OR_RETURN(const v1::LoraConfig lora, ReadLoraMetadata(args.user_metadata));
  if (lora.has_alpha()) args.lora_alpha = lora.alpha();
  args.target_modules = {lora.target_modules().begin(), lora.target_modules().end()};
  return args;
}

// Checks the files of a checkpoint. A path without a row passes, because the core refuses it.
absl::Status CheckFilesOf(Runtime& runtime, const std::string& tenant_id, const std::string& path) {
  ASSIGN_OR_RETURN(const std::optional<CheckpointRow> row,
                   runtime.store().FindCheckpoint(tenant_id, path, runtime.NowNanos()));
  return row ? CheckFiles(runtime.checkpoint_dirs(), *row) : absl::OkStatus();
}

template <typename Args>
void SetArgs(Submit& submit, absl::StatusOr<Args> args) {
  SetInvalid(submit, args.status());
  submit.args = args.ok() ? *std::move(args) : Args();
}

}  // namespace

absl::StatusOr<BaseModelRow> FindServedModel(Runtime& runtime, const std::string& name) {
  std::vector<std::string> served;
  for (BaseModelRow& row : runtime.directory().ServedModels()) {
    if (row.name == name) return std::move(row);
    served.push_back(row.name);
  }
  const std::vector<GroupRow> groups = runtime.directory().Groups();
  const bool loading = std::any_of(groups.begin(), groups.end(),
                                   [&](const GroupRow& group) { return group.base_model == name; });
  if (loading || groups.empty()) {
    const std::string reason = QueueOfBaseModel(runtime, name).reason;
    return absl::UnavailableError(
        absl::StrFormat("base_model is '%s', its worker is starting%s; try again", name,
                        reason.empty() ? "" : absl::StrCat(": ", reason)));
  }
  return WithDetail(absl::NotFoundError(
                        absl::StrFormat("base_model is '%s', this server has %s", name,
                                        served.empty() ? "none yet" : absl::StrJoin(served, ", "))),
                    "unknown_base_model", "base_model");
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::CreateModelRequest& request) {
  RETURN_IF_ERROR(ValidateSeq(request.model_seq_id(), "model_seq_id"));
  Submit submit = Start(tenant_id, request.session_id(), request.model_seq_id(),
                        OperationKind::kCreateModel, request);
  SetArgs(submit, MakeCreateModelArgs(runtime_, request, lora_));
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::UnloadModelRequest& request) {
  Submit submit = Start(tenant_id, request.model_id(), 0, OperationKind::kUnloadModel, request);
  submit.args = UnloadArgs{};
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::ForwardBackwardRequest& request) {
  RETURN_IF_ERROR(ValidateTrainKey(request));
  Submit submit = Start(
      tenant_id, request.model_id(), request.seq_id(),
      request.forward_only() ? OperationKind::kForward : OperationKind::kForwardBackward, request);
  submit.args = TrainArgs{.batch_bytes = BatchBytes(request)};
  ASSIGN_OR_RETURN(const ModelLimits limits,
                   LimitsOfModel(runtime_, tenant_id, request.model_id()));
  std::optional<v1::ForwardBackwardRequest> widened;
  if (HasIntegerNumbers(request)) widened = WidenIntegers(request);
  const v1::ForwardBackwardRequest& meant = widened ? *widened : request;
  SetInvalid(submit, ValidateForwardBackward(meant, limits));
  if (!submit.invalid) {
    ASSIGN_OR_RETURN(submit.payload, StoreBody(runtime_, tenant_id, meant, CountTokens(meant)));
  }
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::OptimStepRequest& request) {
  RETURN_IF_ERROR(ValidateTrainKey(request));
  Submit submit =
      Start(tenant_id, request.model_id(), request.seq_id(), OperationKind::kOptimStep, request);
  SetArgs(submit, MakeOptimStepArgs(request));
  // Parameters of another optimizer are an error of the program, not of the message, so the future
  // reports it.
  submit.invalid_through_future = !request.has_adam_params();
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::SaveWeightsRequest& request) {
  RETURN_IF_ERROR(ValidateTrainKey(request));
  Submit submit =
      Start(tenant_id, request.model_id(), request.seq_id(), OperationKind::kSaveWeights, request);
  SetArgs(submit, MakeSaveArgs(request));
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::SaveWeightsForSamplerRequest& request) {
  RETURN_IF_ERROR(ValidateTrainKey(request));
  Submit submit = Start(tenant_id, request.model_id(), request.seq_id(),
                        OperationKind::kSaveWeightsForSampler, request);
  SetArgs(submit, MakeSaveArgs(request));
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::SaveWeightsExternalRequest& request) {
  RETURN_IF_ERROR(ValidateSeq(request.seq_id(), "seq_id"));
  Submit submit = Start(tenant_id, request.model_id(), request.seq_id(),
                        OperationKind::kSaveWeightsExternal, request);
  SetArgs(submit, MakeSaveArgs(request));
  if (submit.invalid) return submit;
  SetInvalid(submit, ValidateAgeRecipients(request.age_encryption_recipients()).status());
  // The future reports an unsupported kind of key.
  submit.invalid_through_future = submit.invalid.has_value();
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::LoadWeightsRequest& request,
                                                const std::string& reader_tenant_id) {
  const bool creates_model = request.has_model_seq_id();
  if (creates_model == !request.model_id().empty()) {
    return Invalid("invalid_field", "model_id",
                   "either model_id with seq_id or session_id with "
                   "model_seq_id must be given");
  }
  const int64_t seq_id = creates_model ? request.model_seq_id() : request.seq_id();
  RETURN_IF_ERROR(creates_model ? ValidateSeq(seq_id, "model_seq_id") : ValidateTrainKey(request));
  Submit submit = Start(tenant_id, creates_model ? request.session_id() : request.model_id(),
                        seq_id, OperationKind::kLoadWeights, request);
  if (creates_model) submit.op_class = OpClass::kModel;
  absl::StatusOr<LoadArgs> args = MakeLoadArgs(runtime_, request);
  if (args.ok()) {
    const std::string& reader = reader_tenant_id.empty() ? tenant_id : reader_tenant_id;
    const absl::Status files = CheckFilesOf(runtime_, reader, request.path());
    if (!files.ok()) args = files;
  }
  SetArgs(submit, std::move(args));
  std::get<LoadArgs>(submit.args).reader_tenant_id = reader_tenant_id;
  return submit;
}

absl::StatusOr<Submit> SubmissionBuilder::Build(const std::string& tenant_id,
                                                const v1::SampleRequest& request) {
  RETURN_IF_ERROR(ValidateSeq(request.seq_id(), "seq_id"));
  Submit submit = Start(tenant_id, request.sampling_session_id(), request.seq_id(),
                        OperationKind::kSample, request);
  SampleArgs args{.num_samples = request.num_samples(),
                  .prompt_tokens = 0,
                  .max_tokens = request.params().max_tokens(),
                  .has_seed = request.params().has_seed(),
                  .seed = request.params().seed()};
  const absl::StatusOr<ModelLimits> limits =
      LimitsOfSampler(runtime_, tenant_id, request.sampling_session_id());
  if (absl::IsNotFound(limits.status())) {
    // The core decides if the end of its session removed the sampler.
    SetInvalid(submit, limits.status());
    submit.args = args;
    return submit;
  }
  RETURN_IF_ERROR(limits.status());
  const absl::StatusOr<int64_t> prompt_tokens = ValidateSample(request, *limits);
  SetInvalid(submit, prompt_tokens.status());
  args.prompt_tokens = prompt_tokens.value_or(0);
  submit.args = args;
  if (!submit.invalid) {
    ASSIGN_OR_RETURN(submit.payload, StoreBody(runtime_, tenant_id, request, args.prompt_tokens));
  }
  return submit;
}

}  // namespace lathe::engine
