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
#include "services/worker/models/qwen3/sharding.h"

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

absl::StatusOr<MatmulArithmetic> ChooseArithmetic(ComputeDtype compute_dtype, at::Device device,
                                                  at::ScalarType matrix_dtype) {
  const bool has_bf16 = !device.is_cpu() || CpuHasBf16();
  if (compute_dtype == ComputeDtype::kAuto) {
    return has_bf16 ? MatmulArithmetic::kBf16 : MatmulArithmetic::kFp32;
  }
  if (compute_dtype == ComputeDtype::kFp32) {
    if (!device.is_cpu() && matrix_dtype == at::kBFloat16) {
      return absl::InvalidArgumentError(
          "compute_dtype is fp32, bf16 weights on a GPU are multiplied in bf16");
    }
    return MatmulArithmetic::kFp32;
  }
  if (!has_bf16) {
    return absl::InvalidArgumentError(
        "compute_dtype is bf16, this CPU does not multiply bf16 (AVX512-BF16)");
  }
  if (matrix_dtype != at::kBFloat16) {
    return absl::InvalidArgumentError("compute_dtype is bf16, the folder's weights are not");
  }
  return MatmulArithmetic::kBf16;
}

absl::StatusOr<LoadedModel> LoadQwen3(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress, ComputeDtype compute_dtype) {
  ASSIGN_OR_RETURN(const ModelSpec spec, ReadQwen3Config(folder));
  ASSIGN_OR_RETURN(ModelPart part, ShardQwen3(spec, TpPlace()));
  ASSIGN_OR_RETURN(HfTensors tensors, HfTensors::Open(folder, progress));
  ASSIGN_OR_RETURN(Qwen3Weights weights, ReadQwen3Weights(part, tensors, device));
  ASSIGN_OR_RETURN(weights.arithmetic,
                   ChooseArithmetic(compute_dtype, device, weights.embedding.dtype()));
  return LoadedModel{.model = std::make_unique<Qwen3Model>(std::move(part), std::move(weights)),
                     .content_hash = tensors.ContentHash(Canonical(spec))};
}

}  // namespace

absl::StatusOr<ComputeDtype> ParseComputeDtype(const std::string& name) {
  if (name == "auto") return ComputeDtype::kAuto;
  if (name == "fp32") return ComputeDtype::kFp32;
  if (name == "bf16") return ComputeDtype::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("compute_dtype is ", name, ", want auto, fp32 or bf16"));
}

absl::StatusOr<LoadedModel> LoadModel(const std::filesystem::path& folder, at::Device device,
                                      const LoadProgress& progress, ComputeDtype compute_dtype) {
  ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonObject(folder / "config.json"));
  const auto type = config.find("model_type");
  if (type != config.end() && *type == "qwen3") {
    return LoadQwen3(folder, device, progress, compute_dtype);
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("config.json: model_type is %s, supported is \"qwen3\"",
                      type == config.end() ? "missing" : type->dump()));
}

}  // namespace lathe::worker
