#include "services/api-gateway/json/model_json.h"

#include "libs/common/status_macros.h"
#include "services/api-gateway/json/metadata_json.h"

namespace lathe::gateway {
namespace {

constexpr int64_t kDefaultRank = 32;

// target_modules is not part of the Tinker API, whose clients use user metadata instead.
void ReadTargetModules(FieldReader& in, const Json& body, v1::LoraConfig& config) {
  constexpr char kName[] = "target_modules";
  if (!in.Has(kName)) return;
  const Json& names = body.at(kName);
  if (!names.is_array() || names.empty()) return in.Fail(kName, "a list of at least one name");
  for (const Json& name : names) {
    if (!name.is_string()) return in.Fail(kName, "a list of strings");
    config.add_target_modules(name.get<std::string>());
  }
}

absl::StatusOr<v1::LoraConfig> LoraConfigFromJson(const Json& body, const std::string& pointer) {
  FieldReader in(body, pointer);
  v1::LoraConfig config;
  config.set_rank(in.IntOr("rank", kDefaultRank));
  if (const auto seed = in.OptionalSeed("seed")) config.set_seed(*seed);
  config.set_train_attn(in.BoolOr("train_attn", true));
  config.set_train_mlp(in.BoolOr("train_mlp", true));
  config.set_train_unembed(in.BoolOr("train_unembed", true));
  if (in.Has("alpha")) config.set_alpha(in.Number("alpha"));
  ReadTargetModules(in, body, config);
  RETURN_IF_ERROR(in.status());
  return config;
}

}  // namespace

absl::StatusOr<v1::CreateModelRequest> CreateModelFromJson(const Json& body) {
  FieldReader in(body);
  v1::CreateModelRequest request;
  request.set_session_id(in.String("session_id"));
  request.set_model_seq_id(in.Int("model_seq_id"));
  request.set_base_model(in.String("base_model"));
  ReadMetadata(in, "user_metadata", request.mutable_user_metadata());
  FieldReader optimizer(in.Object("optimizer_config"), in.PointerTo("optimizer_config"));
  request.set_optimizer_type(optimizer.StringOr("type", ""));
  if (in.Has("lora_config")) {
    ASSIGN_OR_RETURN(*request.mutable_lora_config(),
                     LoraConfigFromJson(in.Object("lora_config"), in.PointerTo("lora_config")));
  }
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(optimizer.status());
  return request;
}

absl::StatusOr<v1::UnloadModelRequest> UnloadModelFromJson(const Json& body) {
  FieldReader in(body);
  v1::UnloadModelRequest request;
  request.set_model_id(in.String("model_id"));
  RETURN_IF_ERROR(in.status());
  return request;
}

absl::StatusOr<v1::GetModelRequest> GetInfoFromJson(const Json& body) {
  FieldReader in(body);
  v1::GetModelRequest request;
  request.set_model_id(in.String("model_id"));
  RETURN_IF_ERROR(in.status());
  return request;
}

Json GetInfoToJson(const v1::GetModelResponse& response) {
  Json data = {{"model_name", response.base_model()}, {"arch", nullptr}, {"tokenizer_id", nullptr}};
  if (!response.arch().empty()) data["arch"] = response.arch();
  if (!response.tokenizer_id().empty()) data["tokenizer_id"] = response.tokenizer_id();
  return {{"type", "get_info"},
          {"model_id", response.model_id()},
          {"model_name", response.base_model()},
          {"model_data", std::move(data)},
          {"is_lora", true},
          {"lora_rank", response.lora_rank()},
          {"optimizer_config", {{"type", "adamw"}}}};
}

Json FutureToJson(const v1::SubmitResponse& response) {
  return {{"request_id", response.request_id()}};
}

}  // namespace lathe::gateway
