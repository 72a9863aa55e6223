#include "services/worker/spec/dense_decoder.h"

#include <initializer_list>
#include <utility>

#include <absl/strings/str_cat.h>

namespace lathe::worker {
namespace {

// FSDP units of a layer: attention, gate and up, down.
constexpr int64_t kUnitsPerLayer = 3;

class DenseTables {
 public:
  explicit DenseTables(const DenseShape& shape) : shape_(shape) {}

  LayerSpec AddLayer() {
    prefix_ = absl::StrCat("model.layers.", layer_, ".");
    const int64_t hidden = shape_.hidden_size;
    const int64_t unit = layer_ * kUnitsPerLayer;
    LayerSpec layer{.attention = {.num_heads = shape_.num_heads,
                                  .num_kv_heads = shape_.num_kv_heads,
                                  .head_dim = shape_.head_dim,
                                  .scale = ScaleOf(shape_.head_dim),
                                  .window = shape_.windows.empty() ? 0 : shape_.windows[layer_],
                                  .has_qk_norm = shape_.has_qk_norm,
                                  .rope = 0},
                    .intermediate_size = shape_.intermediate_size,
                    .activation = shape_.activation};
    layer.attention_norm = AddVector("input_layernorm", hidden);
    layer.qkv = AddStack(unit, {Query(), Key("k_proj"), Key("v_proj")});
    if (shape_.has_qk_norm) {
      layer.q_norm = AddVector("self_attn.q_norm", shape_.head_dim);
      layer.k_norm = AddVector("self_attn.k_norm", shape_.head_dim);
    }
    layer.o = AddStack(unit, {Output()});
    if (shape_.has_output_norms) {
      layer.attention_output_norm = AddVector("post_attention_layernorm", hidden);
      layer.mlp_norm = AddVector("pre_feedforward_layernorm", hidden);
      layer.mlp_output_norm = AddVector("post_feedforward_layernorm", hidden);
    } else {
      layer.mlp_norm = AddVector("post_attention_layernorm", hidden);
    }
    layer.gate_up = AddStack(unit + 1, {Gate("gate_proj"), Gate("up_proj")});
    layer.down = AddStack(unit + 2, {Down()});
    ++layer_;
    return layer;
  }

  LinearTable TakeLinears() {
    layer_ = kNoLayer;
    prefix_.clear();
    LinearSpec head = RowsOf("lm_head", LoraFamily::kUnembedding, CutAxis::kVocabulary,
                             shape_.vocab_size, /*has_bias=*/false);
    linears_.embedding = head;
    linears_.embedding.name = linears_.embedding.source = "model.embed_tokens";
    linears_.lm_head = static_cast<int64_t>(linears_.rows.size());
    linears_.rows.push_back(std::move(head));
    return std::move(linears_);
  }

  VectorTable TakeVectors() {
    prefix_ = "model.";
    vectors_.final_norm = AddVector("norm", shape_.hidden_size);
    return std::move(vectors_);
  }

 private:
  // A linear with whole inputs.
  LinearSpec RowsOf(const char* name, LoraFamily group, CutAxis axis, int64_t out_features,
                    bool has_bias) const {
    const std::string full_name = absl::StrCat(prefix_, name);
    return {.name = full_name,
            .layer = layer_,
            .in_features = shape_.hidden_size,
            .out_features = out_features,
            .cut = TpCut::kRows,
            .axis = axis,
            .group = group,
            .source = full_name,
            .has_bias = has_bias};
  }
  // A linear with whole outputs.
  LinearSpec ColumnsOf(const char* name, LoraFamily group, CutAxis axis, int64_t in_features,
                       bool has_bias) const {
    LinearSpec linear = RowsOf(name, group, axis, shape_.hidden_size, has_bias);
    linear.in_features = in_features;
    linear.cut = TpCut::kColumns;
    return linear;
  }

  LinearSpec Query() const {
    return RowsOf("self_attn.q_proj", LoraFamily::kAttention, CutAxis::kQueries,
                  shape_.num_heads * shape_.head_dim, shape_.has_qkv_bias);
  }
  LinearSpec Key(const char* name) const {
    return RowsOf(absl::StrCat("self_attn.", name).c_str(), LoraFamily::kAttention, CutAxis::kKeys,
                  shape_.num_kv_heads * shape_.head_dim, shape_.has_qkv_bias);
  }
  LinearSpec Output() const {
    return ColumnsOf("self_attn.o_proj", LoraFamily::kAttention, CutAxis::kQueries,
                     shape_.num_heads * shape_.head_dim, shape_.has_o_bias);
  }
  LinearSpec Gate(const char* name) const {
    return RowsOf(absl::StrCat("mlp.", name).c_str(), LoraFamily::kMlp, CutAxis::kIntermediate,
                  shape_.intermediate_size, shape_.has_mlp_bias);
  }
  LinearSpec Down() const {
    return ColumnsOf("mlp.down_proj", LoraFamily::kMlp, CutAxis::kIntermediate,
                     shape_.intermediate_size, shape_.has_mlp_bias);
  }

  int64_t AddStack(int64_t unit, std::initializer_list<LinearSpec> linears) {
    linears_.stacks.push_back({.first = static_cast<int64_t>(linears_.rows.size()),
                               .count = static_cast<int64_t>(linears.size()),
                               .unit = unit});
    linears_.rows.insert(linears_.rows.end(), linears);
    return static_cast<int64_t>(linears_.stacks.size()) - 1;
  }

  int64_t AddVector(const char* name, int64_t size) {
    vectors_.rows.push_back({.source = absl::StrCat(prefix_, name, ".weight"), .size = size});
    return static_cast<int64_t>(vectors_.rows.size()) - 1;
  }

  const DenseShape& shape_;
  int64_t layer_ = 0;
  std::string prefix_;
  LinearTable linears_;
  VectorTable vectors_;
};

}  // namespace

DecoderSpec DenseDecoder(const DenseShape& shape) {
  DecoderSpec spec{.family = shape.family,
                   .hidden_size = shape.hidden_size,
                   .vocab_size = shape.vocab_size,
                   .max_position_embeddings = shape.max_position_embeddings,
                   .rms_norm_eps = shape.rms_norm_eps,
                   .tie_word_embeddings = shape.tie_word_embeddings,
                   .eos_token_ids = shape.eos_token_ids,
                   .ropes = {shape.rope}};
  DenseTables tables(shape);
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    spec.layers.push_back(tables.AddLayer());
  }
  spec.linears = std::make_shared<const LinearTable>(tables.TakeLinears());
  spec.vectors = std::make_shared<const VectorTable>(tables.TakeVectors());
  return spec;
}

}  // namespace lathe::worker
