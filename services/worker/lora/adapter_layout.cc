#include "services/worker/lora/adapter_layout.h"

#include <array>
#include <utility>

#include <absl/strings/str_cat.h>

namespace lathe::worker {
namespace {

// One side of a linear on a rank.
struct Side {
  Shard features;
  int64_t whole = 0;
  int64_t num_holders = 1;
};

// Returns a side that every rank of axis tp holds whole.
Side Whole(const ModelPart& model, int64_t features) {
  return {.features = {.size = features}, .whole = features, .num_holders = model.place.size};
}

struct TargetShape {
  LoraTarget target;
  const char* parent;
  const char* name;  // as in kLoraModules
  Side in;
  Side out;
};

std::array<TargetShape, kNumLoraTargets> TargetShapes(const ModelPart& model) {
  const ModelSpec& m = model.whole;
  const Side hidden = Whole(model, m.hidden_size);
  const Side queries{model.queries, m.num_heads * m.head_dim};
  const Side keys{model.keys, m.num_kv_heads * m.head_dim, model.num_kv_replicas};
  const Side intermediate{model.intermediate, m.intermediate_size};
  return {{
      {LoraTarget::kQ, "self_attn", "q_proj", hidden, queries},
      {LoraTarget::kK, "self_attn", "k_proj", hidden, keys},
      {LoraTarget::kV, "self_attn", "v_proj", hidden, keys},
      {LoraTarget::kO, "self_attn", "o_proj", queries, hidden},
      {LoraTarget::kGate, "mlp", "gate_proj", hidden, intermediate},
      {LoraTarget::kUp, "mlp", "up_proj", hidden, intermediate},
      {LoraTarget::kDown, "mlp", "down_proj", intermediate, hidden},
  }};
}

AdapterMatrix WithSide(AdapterMatrix matrix, const Side& side) {
  matrix.features = side.features;
  matrix.whole_features = side.whole;
  matrix.num_holders = side.num_holders;
  return matrix;
}

void AppendPair(const AdapterMatrix& linear, const Side& in, const Side& out, int64_t rank,
                std::vector<AdapterMatrix>& layout) {
  AdapterMatrix& a = layout.emplace_back(WithSide(linear, in));
  a.rows = rank;
  a.cols = in.features.padded_size();
  AdapterMatrix& b = layout.emplace_back(WithSide(linear, out));
  b.is_b = true;
  b.rows = out.features.padded_size();
  b.cols = rank;
}

// Returns the range of `sizes` that contains `matrix`.
int64_t& RangeOf(const AdapterMatrix& matrix, const ModelPart& model, AdapterSizes& sizes) {
  if (matrix.num_holders == 1) return sizes.sharded;
  return matrix.num_holders == model.place.size ? sizes.summed : sizes.shared;
}

AdapterSizes SizesOf(const std::vector<AdapterMatrix>& layout, const ModelPart& model) {
  AdapterSizes sizes;
  for (const AdapterMatrix& matrix : layout) {
    RangeOf(matrix, model, sizes) += matrix.num_elements();
    sizes.whole += matrix.num_whole_elements();
    sizes.shares += matrix.num_holders * matrix.num_whole_elements();
  }
  return sizes;
}

void SetOffsets(const ModelPart& model, std::vector<AdapterMatrix>& layout) {
  const AdapterSizes sizes = SizesOf(layout, model);
  AdapterSizes next{.shared = sizes.summed, .sharded = sizes.summed + sizes.shared};
  for (AdapterMatrix& matrix : layout) {
    int64_t& end = RangeOf(matrix, model, next);
    matrix.offset = std::exchange(end, end + matrix.num_elements());
  }
}

}  // namespace

std::vector<AdapterMatrix> AdapterLayout(const ModelPart& model, const LoraSpec& lora) {
  std::vector<AdapterMatrix> layout;
  const auto shapes = TargetShapes(model);
  for (int64_t layer = 0; layer < model.whole.num_layers; ++layer) {
    for (const TargetShape& shape : shapes) {
      if (!ContainsModule(lora.target_modules, shape.name)) continue;
      AppendPair(
          {.module = absl::StrCat("model.layers.", layer, ".", shape.parent, ".", shape.name),
           .layer = layer,
           .target = shape.target},
          shape.in, shape.out, lora.rank, layout);
    }
  }
  if (ContainsModule(lora.target_modules, "lm_head")) {
    AppendPair({.module = "lm_head"}, Whole(model, model.whole.hidden_size),
               {model.vocabulary, model.whole.vocab_size}, lora.rank, layout);
  }
  SetOffsets(model, layout);
  return layout;
}

AdapterSizes SizesOfAdapter(const ModelPart& model, const LoraSpec& lora) {
  return SizesOf(AdapterLayout(model, lora), model);
}

int64_t NumAdapterParameters(const ModelPart& model, const LoraSpec& lora) {
  return SizesOfAdapter(model, lora).total();
}

AdapterTensors ViewAdapter(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora) {
  AdapterTensors tensors{.flat = flat, .layers = std::vector<LayerLora>(model.whole.num_layers)};
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

std::shared_ptr<AdapterWeights> MakeAdapterWeights(const at::Tensor& flat, const ModelPart& model,
                                                   const LoraSpec& lora) {
  return std::make_shared<AdapterWeights>(
      AdapterWeights{.lora = lora,
                     .scaling = lora.alpha / static_cast<double>(lora.rank),
                     .tensors = ViewAdapter(flat, model, lora)});
}

}  // namespace lathe::worker
