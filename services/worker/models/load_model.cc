#include "services/worker/models/load_model.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "libs/common/status_macros.h"
#include "services/worker/models/hf_tensors.h"
#include "services/worker/models/json_file.h"
#include "services/worker/models/qwen3/config.h"
#include "services/worker/models/qwen3/hf_weights.h"
#include "services/worker/models/qwen3/model.h"

namespace lathe::worker {
namespace {

// The config's part of the content hash: what we understood of it, in a fixed order.
std::string Canonical(const ModelSpec& s) {
  return absl::StrCat(
      "family=", s.family, ";layers=", s.num_layers, ";hidden=", s.hidden_size,
      ";intermediate=", s.intermediate_size, ";heads=", s.num_heads, ";kv_heads=", s.num_kv_heads,
      ";head_dim=", s.head_dim, ";vocab=", s.vocab_size, ";positions=", s.max_position_embeddings,
      ";eps=", absl::StrFormat("%.17g", s.rms_norm_eps),
      ";theta=", absl::StrFormat("%.17g", s.rope_theta), ";tied=", s.tie_word_embeddings,
      ";bias=", s.attention_bias, ";eos=", absl::StrJoin(s.eos_token_ids, ","));
}

absl::StatusOr<LoadedModel> LoadQwen3(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const ModelSpec spec, ReadQwen3Config(folder));
  ASSIGN_OR_RETURN(HfTensors tensors, HfTensors::Open(folder, progress));
  ASSIGN_OR_RETURN(Qwen3Weights weights, ReadQwen3Weights(spec, tensors, device));
  return LoadedModel{.model = std::make_unique<Qwen3Model>(spec, std::move(weights)),
                     .content_hash = tensors.ContentHash(Canonical(spec))};
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonObject(folder / "config.json"));
  const auto type = config.find("model_type");
  if (type != config.end() && *type == "qwen3") return LoadQwen3(folder, device, progress);
  return absl::InvalidArgumentError(
      absl::StrFormat("config.json: model_type is %s, supported is \"qwen3\"",
                      type == config.end() ? "missing" : type->dump()));
}

}  // namespace lathe::worker
