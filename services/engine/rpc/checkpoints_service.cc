#include "services/engine/rpc/checkpoints_service.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/common/digest/sha256.h"
#include "libs/common/random/random_id.h"
#include "libs/common/status_macros.h"
#include "services/engine/core/checkpoints/checkpoints.h"
#include "services/engine/rpc/authenticated_call.h"
#include "services/engine/rpc/checkpoint_files.h"
#include "services/engine/rpc/validate_names.h"
#include "services/engine/rpc/validation.h"

namespace lathe::engine {
namespace {

// Formats 128 bits as a session id.
std::string SessionIdOf(std::string bits) {
  std::string hex = absl::BytesToHexString(bits.substr(0, 16));
  hex[12] = '4';
  hex[16] = "89ab"[hex[16] % 4];
  return absl::StrFormat("%s-%s-%s-%s-%s", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                         hex.substr(16, 4), hex.substr(20));
}

// Returns an id that is the same for repeated calls and unique to the tenant and its key.
std::string NewSessionId(const std::string& tenant_id, const std::string& idempotency_key) {
  if (idempotency_key.empty()) return SessionIdOf(RandomBytes(16));
  Sha256 hash;
  hash.Update(absl::StrCat("copy_weights\n", tenant_id, "\n", idempotency_key));
  return SessionIdOf(hash.FinishBytes());
}

absl::Status CheckDestination(const v1::CopyWeightsRequest& request) {
  if (request.has_model_seq_id() == request.session_id().empty()) {
    return Invalid("invalid_field", "model_seq_id",
                   "session_id and model_seq_id must be given together");
  }
  if (request.has_model_seq_id() && !request.destination_project_id().empty()) {
    return Invalid("invalid_field", "destination_project_id",
                   "either destination_project_id or session_id must be given, not both");
  }
  if (request.has_model_seq_id()) {
    RETURN_IF_ERROR(ValidateSeq(request.model_seq_id(), "model_seq_id"));
  }
  if (!request.destination_project_id().empty()) {
    RETURN_IF_ERROR(ValidateProjectId(request.destination_project_id(), "destination_project_id"));
  }
  RETURN_IF_ERROR(
      ValidateText(request.idempotency_key(), kMaxIdempotencyKeyBytes, "idempotency_key"));
  if (request.has_ttl_seconds()) return ValidateTtl(request.ttl_seconds());
  return absl::OkStatus();
}

}  // namespace

CheckpointsService::CheckpointsService(Runtime& runtime, KeyRing& keys, ReadThreads& reads,
                                       ArchiveSigner& archives, AuditLog& audit)
    : runtime_(runtime),
      keys_(keys),
      reads_(reads),
      archives_(archives),
      audit_(audit),
      builder_(runtime) {}

CheckpointsService::~CheckpointsService() = default;

CheckpointsService::Reactor* CheckpointsService::SaveWeightsExternal(
    Context* context, const v1::SaveWeightsExternalRequest* request, v1::SubmitResponse* response) {
  return ChangeCall<Submit>(
      runtime_, keys_, context, "Checkpoints.SaveWeightsExternal",
      [this, request](const Caller& caller) { return builder_.Build(caller.tenant_id, *request); },
      [response](const Answer& answer) { response->set_request_id(answer.id); });
}

CheckpointsService::Reactor* CheckpointsService::DescribeExternalWeights(
    Context* context, const v1::DescribeExternalWeightsRequest* request,
    v1::DescribeExternalWeightsResponse* response) {
  return ReadCall(reads_, keys_, context, "Checkpoints.DescribeExternalWeights",
                  [this, request, response](const Caller& caller) -> absl::Status {
                    ASSIGN_OR_RETURN(const CheckpointRow row,
                                     FindCheckpoint(runtime_, caller.tenant_id,
                                                    request->tinker_path(), "tinker_path"));
                    ASSIGN_OR_RETURN(*response, archives_.DescribeFiles(row, caller.key_id));
                    return audit_.RecordRead(caller, "checkpoint_download", row.tinker_path);
                  });
}

CheckpointsService::Reactor* CheckpointsService::CopyWeights(Context* context,
                                                             const v1::CopyWeightsRequest* request,
                                                             v1::CopyWeightsResponse* response) {
  return ReadAndChangeCall<CopyCheckpoint>(
      copies_, runtime_, keys_, context, "Checkpoints.CopyWeights",
      [this, request](const Caller& caller) { return PlanCopy(caller, *request); },
      [response](const Answer& answer) { response->set_tinker_path(answer.id); });
}

absl::StatusOr<CopyCheckpoint> CheckpointsService::PlanCopy(const Caller& caller,
                                                            const v1::CopyWeightsRequest& request) {
  RETURN_IF_ERROR(CheckDestination(request));
  ASSIGN_OR_RETURN(const std::optional<Caller> token,
                   AuthenticateReader(keys_, request.weights_access_token(), Scope::kRead));
  const std::string reader = token ? token->tenant_id : "";
  absl::StatusOr<CheckpointRow> source =
      FindCheckpoint(runtime_, caller.tenant_id, request.source_path(), "source_path");
  if (!source.ok() && !reader.empty()) {
    source = FindCheckpoint(runtime_, reader, request.source_path(), "source_path");
  }
  const bool may_be_repeated = !request.idempotency_key().empty() && !request.has_model_seq_id();
  if (absl::IsNotFound(source.status()) && may_be_repeated) {
    // The core has a record of the result of an earlier call.
    CopyCheckpoint again;
    again.tenant_id = caller.tenant_id;
    again.source_path = request.source_path();
    again.makes_session = true;
    again.session_id = NewSessionId(caller.tenant_id, request.idempotency_key());
    return again;
  }
  RETURN_IF_ERROR(source.status());
  if (source->kind == CheckpointKind::kExternal) {
    return Invalid("incompatible_checkpoint", "source_path",
                   absl::StrFormat("%s is for download only; copy a weights or a sampler_weights "
                                   "checkpoint",
                                   request.source_path()));
  }
  if (token) RETURN_IF_ERROR(RecordRead(audit_, *token, caller, *source, "copy"));
  CopyCheckpoint copy;
  copy.tenant_id = caller.tenant_id;
  copy.reader_tenant_id = reader;
  copy.source_path = request.source_path();
  copy.source_dir = source->dir;
  copy.ttl_seconds = request.ttl_seconds();
  copy.makes_session = !request.has_model_seq_id();
  copy.session_id = copy.makes_session ? NewSessionId(caller.tenant_id, request.idempotency_key())
                                       : request.session_id();
  copy.model_seq_id = request.model_seq_id();
  copy.actor = caller.key_id;
  copy.project_id = request.destination_project_id();
  // The run's metadata belongs to its owner, so other tenants' copies do not get it.
  if (source->tenant_id == caller.tenant_id || source->tenant_id == reader) {
    ASSIGN_OR_RETURN(const std::optional<ModelRow> run,
                     runtime_.store().FindModel(source->tenant_id, source->model_id));
    if (run) copy.run_metadata = run->user_metadata;
  }
  copy.dir = "c" + RandomId(16);
  const std::string run = absl::StrFormat("%s:train:%d", copy.session_id, copy.model_seq_id);
  RETURN_IF_ERROR(runtime_.checkpoint_dirs().Copy(source->dir, copy.dir,
                                                  CheckpointPath(run, source->kind, source->name)));
  return copy;
}

}  // namespace lathe::engine
