#include "services/api-gateway/json/weights_json.h"

#include "libs/common/errors.h"
#include "libs/common/status_macros.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

absl::StatusOr<v1::AdamParams> AdamParamsFromJson(const Json& body, const std::string& pointer) {
  FieldReader in(body, pointer);
  v1::AdamParams params;
  params.set_learning_rate(in.Number("learning_rate"));
  params.set_beta1(in.NumberOr("beta1", 0.9));
  params.set_beta2(in.NumberOr("beta2", 0.95));
  params.set_eps(in.NumberOr("eps", 1e-12));
  params.set_weight_decay(in.NumberOr("weight_decay", 0.0));
  params.set_grad_clip_norm(in.NumberOr("grad_clip_norm", 0.0));
  RETURN_IF_ERROR(in.status());
  return params;
}

void ReadRecipients(FieldReader& in, const Json& body, v1::SaveWeightsExternalRequest* request) {
  constexpr char kName[] = "age_encryption_recipients";
  if (!in.Has(kName)) return;
  const Json& recipients = body[kName];
  if (!recipients.is_array()) return in.Fail(kName, "a list of strings");
  for (const Json& recipient : recipients) {
    if (!recipient.is_string()) return in.Fail(kName, "a list of strings");
    request->add_age_encryption_recipients(recipient.get<std::string>());
  }
}

}  // namespace

absl::StatusOr<v1::OptimStepRequest> OptimStepFromJson(const Json& body) {
  FieldReader in(body);
  v1::OptimStepRequest request;
  request.set_model_id(in.String("model_id"));
  request.set_seq_id(in.IntOr("seq_id", 0));
  if (in.Has("optimizer_params")) {
    FieldReader other(in.Object("optimizer_params"), in.PointerTo("optimizer_params"));
    request.set_other_optimizer_type(other.String("type"));
    RETURN_IF_ERROR(other.status());
  } else {
    if (!in.Has("adam_params")) in.Fail("adam_params", "an object, but it is missing");
    RETURN_IF_ERROR(in.status());
    ASSIGN_OR_RETURN(*request.mutable_adam_params(),
                     AdamParamsFromJson(in.Object("adam_params"), in.PointerTo("adam_params")));
  }
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::SaveWeightsRequest> SaveWeightsFromJson(const Json& body) {
  FieldReader in(body);
  v1::SaveWeightsRequest request;
  request.set_model_id(in.String("model_id"));
  request.set_seq_id(in.IntOr("seq_id", 0));
  request.set_name(in.String("path"));
  if (const auto ttl = in.OptionalInt("ttl_seconds")) request.set_ttl_seconds(*ttl);
  request.set_overwrite(in.BoolOr("overwrite", false));
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::SaveWeightsForSamplerRequest> SaveWeightsForSamplerFromJson(const Json& body) {
  FieldReader in(body);
  v1::SaveWeightsForSamplerRequest request;
  request.set_model_id(in.String("model_id"));
  request.set_seq_id(in.IntOr("seq_id", 0));
  if (auto name = in.OptionalString("path")) request.set_name(*std::move(name));
  if (const auto number = in.OptionalInt("sampling_session_seq_id")) {
    request.set_sampling_session_seq_id(*number);
  }
  if (const auto ttl = in.OptionalInt("ttl_seconds")) request.set_ttl_seconds(*ttl);
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  request.set_kind(in.StringOr("kind", ""));
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::SaveWeightsExternalRequest> SaveWeightsExternalFromJson(const Json& body) {
  FieldReader in(body);
  v1::SaveWeightsExternalRequest request;
  request.set_model_id(in.String("model_id"));
  request.set_seq_id(in.IntOr("seq_id", 0));
  request.set_name(in.String("path"));
  if (const auto ttl = in.OptionalInt("ttl_seconds")) request.set_ttl_seconds(*ttl);
  ReadRecipients(in, body, &request);
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::CopyWeightsRequest> CopyWeightsFromJson(const Json& body) {
  FieldReader in(body);
  v1::CopyWeightsRequest request;
  request.set_source_path(in.String("source_path"));
  if (const auto ttl = in.OptionalInt("ttl_seconds")) request.set_ttl_seconds(*ttl);
  request.set_destination_project_id(in.StringOr("destination_project_id", ""));
  request.set_session_id(in.StringOr("session_id", ""));
  if (const auto number = in.OptionalInt("model_seq_id")) request.set_model_seq_id(*number);
  request.set_weights_access_token(in.StringOr("weights_access_token", ""));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json CopyWeightsToJson(const v1::CopyWeightsResponse& response) {
  return {{"tinker_path", response.tinker_path()}};
}

absl::StatusOr<v1::LoadWeightsRequest> LoadWeightsFromJson(const Json& body) {
  FieldReader in(body);
  v1::LoadWeightsRequest request;
  request.set_model_id(in.StringOr("model_id", ""));
  request.set_seq_id(in.IntOr("seq_id", 0));
  request.set_session_id(in.StringOr("session_id", ""));
  if (const auto number = in.OptionalInt("model_seq_id")) request.set_model_seq_id(*number);
  request.set_base_model(in.StringOr("base_model", ""));
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  request.set_path(in.String("path"));
  request.set_optimizer(in.BoolOr("optimizer", false));
  FieldReader optimizer(in.Object("optimizer_config"), in.PointerTo("optimizer_config"));
  request.set_optimizer_type(optimizer.StringOr("type", ""));
  request.set_weights_access_token(in.StringOr("weights_access_token", ""));
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(optimizer.status());
  return request;
}

absl::StatusOr<v1::GetWeightsInfoRequest> WeightsInfoFromJson(const Json& body) {
  FieldReader in(body);
  v1::GetWeightsInfoRequest request;
  request.set_tinker_path(in.String("tinker_path"));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json WeightsInfoToJson(const v1::GetWeightsInfoResponse& response) {
  return {{"base_model", response.base_model()},    {"is_lora", response.is_lora()},
          {"lora_rank", response.lora_rank()},      {"train_attn", response.train_attn()},
          {"train_mlp", response.train_mlp()},      {"train_unembed", response.train_unembed()},
          {"optimizer_config", {{"type", "adamw"}}}};
}

absl::StatusOr<v1::SetCheckpointTtlRequest> SetTtlFromJson(const Json& body,
                                                           const std::string& tinker_path) {
  FieldReader in(body);
  v1::SetCheckpointTtlRequest request;
  request.set_tinker_path(tinker_path);
  if (const auto ttl = in.OptionalInt("ttl_seconds")) request.set_ttl_seconds(*ttl);
  if (body.is_object() && !body.contains("ttl_seconds")) {
    in.Fail("ttl_seconds", "an integer or null, but it is missing");
  }
  RETURN_IF_ERROR(in.status());
  return request;
}

}  // namespace lathe::gateway
