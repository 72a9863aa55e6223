#include "services/api-gateway/json/weights_json.h"

#include <array>
#include <cstddef>
#include <utility>

#include "libs/common/optimizer/adam_params.h"

namespace lathe::gateway {
namespace {

// A member that is absent from adam_params, except learning_rate, gets the SDK's default.
constexpr Field AdamMember(const AdamField& adam) {
  using Fallback = decltype(Field::fallback);
  return {.name = adam.name,
          .is_required = adam.is_required,
          .fallback = adam.is_required ? Fallback() : Fallback(AdamParams().*adam.number),
          .about = adam.about,
          .schema = adam.range.json_schema};
}

// clang cannot assign to a std::variant in a constant, so each element is built in its place.
template <size_t... kIndex>
constexpr std::array<Field, sizeof...(kIndex)> AdamMembers(std::index_sequence<kIndex...>) {
  return {AdamMember(kAdamFields[kIndex])...};
}
constexpr std::array kAdamMembers = AdamMembers(std::make_index_sequence<kAdamFields.size()>());
constexpr ObjectFields kAdamParams = {"AdamParams", kAdamMembers};

void ReadOtherOptimizer(LargeObject& in, std::string_view name,
                        google::protobuf::Message& message) {
  LargeObject optimizer = in.Object(name);
  static_cast<v1::OptimStepRequest&>(message).set_other_optimizer_type(optimizer.String("type"));
}

constexpr Field kOptimStepFields[] = {
    kModelId,
    kSeqId,
    {.name = "adam_params",
     .is_required = true,
     .object = &kAdamParams,
     .unless = "optimizer_params"},
    {.name = "optimizer_params", .read = ReadOtherOptimizer},
};

constexpr Field kPath = {
    .name = "path", .to = "name", .is_required = true, .ref = "CheckpointName"};
constexpr Field kOptionalPath = {.name = "path", .to = "name", .ref = "CheckpointName"};
constexpr Field kTtl = {.name = "ttl_seconds", .ref = "TtlSeconds"};

constexpr Field kSaveWeightsFields[] = {
    kModelId, kSeqId, kPath, kTtl, kMetadata, {.name = "overwrite", .fallback = false},
};

// Both forms: with a name, or with the number of the sampling session to create.
constexpr Field kSaveForSamplerFields[] = {
    kModelId,
    kSeqId,
    kOptionalPath,
    kTtl,
    kMetadata,
    {.name = "sampling_session_seq_id",
     .about = "Instead of path: the sampling session to create."},
    {.name = "kind", .schema = R"("enum": ["snapshot", "inflight"])"},
};

constexpr Field kSaveExternalFields[] = {
    kModelId,
    kSeqId,
    kPath,
    kTtl,
    {.name = "age_encryption_recipients",
     .about = "X25519 keys, age1…; absent: not encrypted.",
     .schema = R"("maxItems": 10)"},
};

// Both forms: a copy into a project, or a copy as a model of a session.
constexpr Field kCopyWeightsFields[] = {
    {.name = "source_path", .is_required = true},
    {.name = "ttl_seconds"},
    {.name = "destination_project_id", .ref = "ProjectId"},
    {.name = "session_id"},
    {.name = "model_seq_id"},
    {.name = "weights_access_token"},
};

// Both forms: onto an existing model, or creating a model.
constexpr Field kLoadWeightsFields[] = {
    {.name = "model_id", .about = "The model; else session_id and model_seq_id."},
    kSeqId,
    {.name = "session_id"},
    {.name = "model_seq_id"},
    {.name = "base_model"},
    {.name = "path", .is_required = true, .about = "tinker://RUN/weights/NAME"},
    {.name = "optimizer", .about = "The moments too."},
    {.name = "optimizer_config", .to = kSame, .object = &kOptimizerConfig},
    {.name = "weights_access_token"},
    kMetadata,
};

constexpr Field kWeightsInfoFields[] = {{.name = "tinker_path", .is_required = true}};

constexpr Field kSetTtlFields[] = {
    {.name = "ttl_seconds",
     .is_required = true,
     .is_nullable = true,
     .about = "From now; null: never.",
     .schema = R"("minimum": 1, "maximum": 315619200)"},
};

}  // namespace

constexpr BodyFields<v1::OptimStepRequest> kOptimStep = {{"OptimStepRequest", kOptimStepFields}};
constexpr BodyFields<v1::SaveWeightsRequest> kSaveWeights = {
    {"SaveWeightsRequest", kSaveWeightsFields}};
constexpr BodyFields<v1::SaveWeightsForSamplerRequest> kSaveWeightsForSampler = {
    {"SaveWeightsForSamplerRequest", kSaveForSamplerFields}};
constexpr BodyFields<v1::SaveWeightsExternalRequest> kSaveWeightsExternal = {
    {"SaveWeightsExternalRequest", kSaveExternalFields}};
constexpr BodyFields<v1::CopyWeightsRequest> kCopyWeights = {
    {"CopyWeightsRequest", kCopyWeightsFields}};
constexpr BodyFields<v1::LoadWeightsRequest> kLoadWeights = {
    {"LoadWeightsRequest", kLoadWeightsFields}};
constexpr BodyFields<v1::GetWeightsInfoRequest> kWeightsInfo = {
    {"WeightsInfoRequest", kWeightsInfoFields}};
constexpr BodyFields<v1::SetCheckpointTtlRequest> kSetTtl = {{"SetTtlRequest", kSetTtlFields}};

Json CopyWeightsToJson(const v1::CopyWeightsResponse& response) {
  return {{"tinker_path", response.tinker_path()}};
}

Json WeightsInfoToJson(const v1::GetWeightsInfoResponse& response) {
  return {{"base_model", response.base_model()},    {"is_lora", response.is_lora()},
          {"lora_rank", response.lora_rank()},      {"train_attn", response.train_attn()},
          {"train_mlp", response.train_mlp()},      {"train_unembed", response.train_unembed()},
          {"optimizer_config", {{"type", "adamw"}}}};
}

}  // namespace lathe::gateway
