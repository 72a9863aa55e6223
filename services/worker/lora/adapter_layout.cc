#include "services/worker/lora/adapter_layout.h"

#include <utility>

namespace lathe::worker {
namespace {

AdapterMatrix WithSide(AdapterMatrix matrix, const LinearSide& side) {
  matrix.features = side.features;
  matrix.whole_features = side.whole_features;
  matrix.num_holders = side.num_holders;
  return matrix;
}

void AppendPair(const ModelPart& model, int64_t row, int64_t rank,
                std::vector<AdapterMatrix>& layout) {
  const LinearSpec& linear = model.whole.linears->rows[row];
  const AdapterMatrix factor = {.linear_name = linear.name, .linear = row};
  AdapterMatrix& a = layout.emplace_back(WithSide(factor, InputsOf(model, linear)));
  a.rows = rank;
  a.cols = a.features.padded_size();
  AdapterMatrix& b = layout.emplace_back(WithSide(factor, OutputsOf(model, linear)));
  b.is_b = true;
  b.rows = b.features.padded_size();
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
  const std::vector<LinearSpec>& linears = model.whole.linears->rows;
  for (size_t row = 0; row < linears.size(); ++row) {
    if (!ContainsModule(lora.target_modules, linears[row].module())) continue;
    AppendPair(model, static_cast<int64_t>(row), lora.rank, layout);
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
  AdapterTensors tensors{.flat = flat,
                         .linears = std::vector<LoraPair>(model.whole.linears->rows.size())};
  for (const AdapterMatrix& m : AdapterLayout(model, lora)) {
    LoraPair& pair = tensors.linears[m.linear];
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
