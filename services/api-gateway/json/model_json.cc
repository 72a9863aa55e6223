#include "services/api-gateway/json/model_json.h"

namespace lathe::gateway {
namespace {

// alpha and target_modules are not part of the Tinker API, whose clients use user metadata instead.
// Other members absent from lora_config get the SDK's defaults.
constexpr Field kLoraFields[] = {
    {.name = "rank", .fallback = 32, .schema = R"("minimum": 1, "maximum": 512)"},
    {.name = "seed"},
    {.name = "train_attn", .fallback = true},
    {.name = "train_mlp", .fallback = true},
    {.name = "train_unembed", .fallback = true},
    {.name = "alpha",
     .is_nullable = true,
     .about = "default: the server's lora.alpha",
     .schema = R"("exclusiveMinimum": 0)"},
    {.name = "target_modules",
     .min_count = 1,
     .items =
         R"("enum": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"])"},
};
constexpr ObjectFields kLoraConfig = {"LoraConfig", kLoraFields};

constexpr Field kCreateModelFields[] = {
    {.name = "session_id", .is_required = true},
    {.name = "model_seq_id",
     .is_required = true,
     .about = "0, 1, … within the session.",
     .schema = R"("minimum": 0)"},
    {.name = "base_model", .is_required = true},
    {.name = "lora_config", .object = &kLoraConfig},
    {.name = "optimizer_config", .to = kSame, .object = &kOptimizerConfig},
    kMetadata,
};
constexpr Field kModelFields[] = {kModelId};

}  // namespace

constexpr BodyFields<v1::CreateModelRequest> kCreateModel = {
    {"CreateModelRequest", kCreateModelFields}};
constexpr BodyFields<v1::UnloadModelRequest> kUnloadModel = {{"ModelRequest", kModelFields}};
constexpr BodyFields<v1::GetModelRequest> kGetInfo = {{"ModelRequest", kModelFields}};

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
