#include "services/worker/lora/adapter_layout.h"

#include <array>
#include <utility>

#include <absl/strings/str_cat.h>

namespace lathe::worker {
namespace {

struct TargetShape {
  LoraTarget target;
  const char* parent;
  const char* name;  // as in kLoraModules
  int64_t in_features;
  int64_t out_features;
};

std::array<TargetShape, kNumLoraTargets> TargetShapes(const ModelSpec& m) {
  const int64_t q_size = m.num_heads * m.head_dim;
  const int64_t kv_size = m.num_kv_heads * m.head_dim;
  return {{
      {LoraTarget::kQ, "self_attn", "q_proj", m.hidden_size, q_size},
      {LoraTarget::kK, "self_attn", "k_proj", m.hidden_size, kv_size},
      {LoraTarget::kV, "self_attn", "v_proj", m.hidden_size, kv_size},
      {LoraTarget::kO, "self_attn", "o_proj", q_size, m.hidden_size},
      {LoraTarget::kGate, "mlp", "gate_proj", m.hidden_size, m.intermediate_size},
      {LoraTarget::kUp, "mlp", "up_proj", m.hidden_size, m.intermediate_size},
      {LoraTarget::kDown, "mlp", "down_proj", m.intermediate_size, m.hidden_size},
  }};
}

// Appends A and B of one linear behind what `layout` already holds.
void AppendPair(AdapterMatrix matrix, int64_t in_features, int64_t out_features, int64_t rank,
                std::vector<AdapterMatrix>& layout) {
  matrix.offset = layout.empty() ? 0 : layout.back().offset + layout.back().num_elements();
  matrix.is_b = false;
  matrix.rows = rank;
  matrix.cols = in_features;
  layout.push_back(matrix);
  matrix.offset += matrix.num_elements();
  matrix.is_b = true;
  matrix.rows = out_features;
  matrix.cols = rank;
  layout.push_back(std::move(matrix));
}

}  // namespace

std::vector<AdapterMatrix> AdapterLayout(const ModelSpec& model, const LoraSpec& lora) {
  std::vector<AdapterMatrix> layout;
  const auto shapes = TargetShapes(model);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    for (const TargetShape& shape : shapes) {
      if (!ContainsModule(lora.target_modules, shape.name)) continue;
      AppendPair(
          {.module = absl::StrCat("model.layers.", layer, ".", shape.parent, ".", shape.name),
           .layer = layer,
           .target = shape.target},
          shape.in_features, shape.out_features, lora.rank, layout);
    }
  }
  if (ContainsModule(lora.target_modules, "lm_head")) {
    AppendPair({.module = "lm_head"}, model.hidden_size, model.vocab_size, lora.rank, layout);
  }
  return layout;
}

int64_t NumAdapterParameters(const ModelSpec& model, const LoraSpec& lora) {
  const std::vector<AdapterMatrix> layout = AdapterLayout(model, lora);
  return layout.empty() ? 0 : layout.back().offset + layout.back().num_elements();
}

AdapterTensors ViewAdapter(const at::Tensor& flat, const ModelSpec& model, const LoraSpec& lora) {
  AdapterTensors tensors{.flat = flat, .layers = std::vector<LayerLora>(model.num_layers)};
  for (const AdapterMatrix& m : AdapterLayout(model, lora)) {
    LoraPair& pair =
        m.layer < 0 ? tensors.unembed : tensors.layers[m.layer][static_cast<size_t>(m.target)];
    if (m.is_b) {
      pair.b_t = m.Of(flat).t();
    } else {
      pair.a = m.Of(flat);
    }
  }
  return tensors;
}

std::shared_ptr<AdapterWeights> MakeAdapterWeights(const at::Tensor& flat, const ModelSpec& model,
                                                   const LoraSpec& lora) {
  return std::make_shared<AdapterWeights>(
      AdapterWeights{.lora = lora,
                     .scaling = lora.alpha / static_cast<double>(lora.rank),
                     .tensors = ViewAdapter(flat, model, lora)});
}

}  // namespace lathe::worker
