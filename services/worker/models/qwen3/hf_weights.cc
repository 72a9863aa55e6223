#include "services/worker/models/qwen3/hf_weights.h"

#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "libs/common/status_macros.h"

namespace lathe::worker {
namespace {

// A part of a stacked linear.
struct Part {
  std::string name;
  int64_t rows = 0;
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

  absl::StatusOr<BaseWeight> ReadMatrix(const std::string& name, int64_t rows, int64_t cols) {
    return ReadStacked({{name, rows}}, cols);
  }

  // Matrices on top of each other.
  absl::StatusOr<BaseWeight> ReadStacked(const std::vector<Part>& parts, int64_t cols) {
    int64_t rows = 0;
    bool is_bf16 = true;
    for (const Part& part : parts) {
      rows += part.rows;
      is_bf16 = is_bf16 && tensors_.DtypeOf(part.name + ".weight") == at::kBFloat16;
    }
    BaseWeight out(rows, cols, is_bf16 ? at::kBFloat16 : at::kFloat, options_.device());
    int64_t row = 0;
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(const at::Tensor tensor,
                       tensors_.Read(part.name + ".weight", {part.rows, cols}));
      out.SetRows(row, tensor);
      row += part.rows;
    }
    return out;
  }

  absl::StatusOr<at::Tensor> ReadStackedBias(const std::vector<Part>& parts) {
    int64_t size = 0;
    for (const Part& part : parts) size += part.rows;
    at::Tensor out = at::empty({size}, options_);
    int64_t row = 0;
    for (const Part& part : parts) {
      RETURN_IF_ERROR(tensors_.ReadInto(part.name + ".bias", out.narrow(0, row, part.rows)));
      row += part.rows;
    }
    return out;
  }

 private:
  HfTensors& tensors_;
  at::TensorOptions options_;
};

absl::StatusOr<Qwen3LayerWeights> ReadLayer(const ModelSpec& spec, int64_t layer, Reader& reader) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t hidden = spec.hidden_size;
  const int64_t q_size = spec.num_heads * spec.head_dim;
  const int64_t kv_size = spec.num_kv_heads * spec.head_dim;
  const std::vector<Part> qkv = {{attention + "q_proj", q_size},
                                 {attention + "k_proj", kv_size},
                                 {attention + "v_proj", kv_size}};
  const std::vector<Part> gate_up = {{prefix + "mlp.gate_proj", spec.intermediate_size},
                                     {prefix + "mlp.up_proj", spec.intermediate_size}};
  Qwen3LayerWeights w;
  ASSIGN_OR_RETURN(w.input_norm, reader.Read(prefix + "input_layernorm.weight", {hidden}));
  ASSIGN_OR_RETURN(w.qkv, reader.ReadStacked(qkv, hidden));
  ASSIGN_OR_RETURN(w.q_norm, reader.Read(attention + "q_norm.weight", {spec.head_dim}));
  ASSIGN_OR_RETURN(w.k_norm, reader.Read(attention + "k_norm.weight", {spec.head_dim}));
  ASSIGN_OR_RETURN(w.o, reader.ReadMatrix(attention + "o_proj", hidden, q_size));
  if (spec.attention_bias) {
    ASSIGN_OR_RETURN(w.qkv_bias, reader.ReadStackedBias(qkv));
    ASSIGN_OR_RETURN(w.o_bias, reader.Read(attention + "o_proj.bias", {hidden}));
  }
  ASSIGN_OR_RETURN(w.post_norm, reader.Read(prefix + "post_attention_layernorm.weight", {hidden}));
  ASSIGN_OR_RETURN(w.gate_up, reader.ReadStacked(gate_up, hidden));
  ASSIGN_OR_RETURN(w.down,
                   reader.ReadMatrix(prefix + "mlp.down_proj", hidden, spec.intermediate_size));
  return w;
}

}  // namespace

absl::StatusOr<Qwen3Weights> ReadQwen3Weights(const ModelSpec& spec, HfTensors& tensors,
                                              at::Device device) {
  Reader reader(tensors, device);
  Qwen3Weights weights;
  ASSIGN_OR_RETURN(weights.embedding,
                   reader.ReadMatrix("model.embed_tokens", spec.vocab_size, spec.hidden_size));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    ASSIGN_OR_RETURN(Qwen3LayerWeights layer_weights, ReadLayer(spec, layer, reader));
    weights.layers.push_back(std::move(layer_weights));
  }
  ASSIGN_OR_RETURN(weights.final_norm, reader.Read("model.norm.weight", {spec.hidden_size}));
  if (spec.tie_word_embeddings) {
    weights.lm_head = weights.embedding;
    tensors.Ignore("lm_head.weight");  // some folders hold the tied matrix twice
  } else {
    ASSIGN_OR_RETURN(weights.lm_head,
                     reader.ReadMatrix("lm_head", spec.vocab_size, spec.hidden_size));
  }
  if (const auto rest = tensors.Remaining(); !rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", rest.front(), " is not understood"));
  }
  return weights;
}

}  // namespace lathe::worker
