#include "services/worker/models/qwen3/hf_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// Of a stacked linear: `shard` of the `num_rows` that the folder has.
struct Part {
  std::string name;
  int64_t num_rows = 0;
  Shard shard;
};

class Reader {
 public:
  Reader(HfTensors& tensors, at::Device device)
      : tensors_(tensors), options_(at::TensorOptions().dtype(at::kFloat).device(device)) {}

  // A norm: fp32.
  absl::StatusOr<at::Tensor> Read(const std::string& name, at::IntArrayRef shape) {
    at::Tensor out = at::empty(shape, options_);
    RETURN_IF_ERROR(tensors_.ReadInto(name, out));
    return out;
  }

  absl::StatusOr<BaseWeight> ReadRows(Part part, int64_t cols) {
    return ReadStacked({std::move(part)}, cols);
  }

  absl::StatusOr<BaseWeight> ReadColumns(const std::string& name, int64_t rows, int64_t num_cols,
                                         const Shard& shard) {
    BaseWeight out(rows, shard.padded_size(), DtypeOf({{name}}), options_.device());
    ASSIGN_OR_RETURN(const at::Tensor tensor,
                     tensors_.ReadPart(name + ".weight", {rows, num_cols}, /*dim=*/1, shard));
    out.SetRows(0, tensor);
    return out;
  }

  // Matrices on top of each other.
  absl::StatusOr<BaseWeight> ReadStacked(const std::vector<Part>& parts, int64_t cols) {
    BaseWeight out(HeldRows(parts), cols, DtypeOf(parts), options_.device());
    int64_t row = 0;
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(
          const at::Tensor tensor,
          tensors_.ReadPart(part.name + ".weight", {part.num_rows, cols}, /*dim=*/0, part.shard));
      out.SetRows(row, tensor);
      row += part.shard.padded_size();
    }
    return out;
  }

  absl::StatusOr<at::Tensor> ReadStackedBias(const std::vector<Part>& parts) {
    at::Tensor out = at::zeros({HeldRows(parts)}, options_);
    int64_t row = 0;
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(
          const at::Tensor tensor,
          tensors_.ReadPart(part.name + ".bias", {part.num_rows}, /*dim=*/0, part.shard));
      out.narrow(0, row, part.shard.size).copy_(tensor);
      row += part.shard.padded_size();
    }
    return out;
  }

 private:
  static int64_t HeldRows(const std::vector<Part>& parts) {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.shard.padded_size();
    return rows;
  }

  // Of one matrix made of the parts.
  at::ScalarType DtypeOf(const std::vector<Part>& parts) const {
    const bool is_bf16 = std::all_of(parts.begin(), parts.end(), [this](const Part& part) {
      return tensors_.DtypeOf(part.name + ".weight") == at::kBFloat16;
    });
    return is_bf16 ? at::kBFloat16 : at::kFloat;
  }

  HfTensors& tensors_;
  at::TensorOptions options_;
};

absl::StatusOr<Qwen3LayerWeights> ReadLayer(const ModelPart& part, int64_t layer, Reader& reader) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const ModelSpec& spec = part.whole;
  const int64_t hidden = spec.hidden_size;
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  const int64_t mlp_size = spec.intermediate_size;
  const std::vector<Part> qkv = {{attention + "q_proj", q_size, part.queries},
                                 {attention + "k_proj", kv_size, part.keys},
                                 {attention + "v_proj", kv_size, part.keys}};
  const std::vector<Part> gate_up = {{prefix + "mlp.gate_proj", mlp_size, part.intermediate},
                                     {prefix + "mlp.up_proj", mlp_size, part.intermediate}};
  Qwen3LayerWeights w;
  ASSIGN_OR_RETURN(w.input_norm, reader.Read(prefix + "input_layernorm.weight", {hidden}));
  ASSIGN_OR_RETURN(w.qkv, reader.ReadStacked(qkv, hidden));
  ASSIGN_OR_RETURN(w.q_norm, reader.Read(attention + "q_norm.weight", {spec.head_dim}));
  ASSIGN_OR_RETURN(w.k_norm, reader.Read(attention + "k_norm.weight", {spec.head_dim}));
  ASSIGN_OR_RETURN(w.o, reader.ReadColumns(attention + "o_proj", hidden, q_size, part.queries));
  if (spec.attention_bias) {
    ASSIGN_OR_RETURN(w.qkv_bias, reader.ReadStackedBias(qkv));
    ASSIGN_OR_RETURN(w.o_bias, reader.Read(attention + "o_proj.bias", {hidden}));
  }
  ASSIGN_OR_RETURN(w.post_norm, reader.Read(prefix + "post_attention_layernorm.weight", {hidden}));
  ASSIGN_OR_RETURN(w.gate_up, reader.ReadStacked(gate_up, hidden));
  ASSIGN_OR_RETURN(
      w.down, reader.ReadColumns(prefix + "mlp.down_proj", hidden, mlp_size, part.intermediate));
  return w;
}

}  // namespace

absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelPart& part, HfTensors& tensors,
                                              at::Device device) {
  const ModelSpec& spec = part.whole;
  Reader reader(tensors, device);
  Qwen3Weights weights;
  ASSIGN_OR_RETURN(
      weights.embedding,
      reader.ReadRows({"model.embed_tokens", spec.vocab_size, part.vocabulary}, spec.hidden_size));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    ASSIGN_OR_RETURN(Qwen3LayerWeights layer_weights, ReadLayer(part, layer, reader));
    weights.layers.push_back(std::move(layer_weights));
  }
  ASSIGN_OR_RETURN(weights.final_norm, reader.Read("model.norm.weight", {spec.hidden_size}));
  if (spec.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    tensors.Ignore("lm_head.weight");  // some folders hold the tied matrix twice
  } else {
    ASSIGN_OR_RETURN(weights.lm_head, reader.ReadRows({"lm_head", spec.vocab_size, part.vocabulary},
                                                      spec.hidden_size));
  }
  if (const auto rest = tensors.Remaining(); !rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", rest.front(), " is not understood"));
  }
  return weights;
}

}  // namespace lathe::worker
