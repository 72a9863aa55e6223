// Which matrices one adapter has, their names, and where they lie in the flat parameter buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// One LoRA factor: A [rank, in_features] or B [out_features, rank]. The flat buffer has B
// transposed.
struct AdapterMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj", or "lm_head"
  int64_t layer = -1;  // -1: the unembedding
  LoraTarget target = LoraTarget::kQ;
  bool is_b = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t offset = 0;  // first element in the flat buffer

  int64_t num_elements() const { return rows * cols; }
  // "model.layers.0.self_attn.q_proj.lora_A"; initial values and checkpoints go by it.
  std::string name() const { return module + (is_b ? ".lora_B" : ".lora_A"); }

  // View [rows, cols] of its part of `flat` [NumAdapterParameters].
  at::Tensor Of(const at::Tensor& flat) const {
    const at::Tensor part = flat.narrow(0, offset, num_elements());
    return is_b ? part.view({cols, rows}).t() : part.view({rows, cols});
  }
};

// All matrices of an adapter of shape `lora` on `model`, in the order of the flat buffer.
std::vector<AdapterMatrix> AdapterLayout(const ModelSpec& model, const LoraSpec& lora);

// Length of the flat buffer.
int64_t NumAdapterParameters(const ModelSpec& model, const LoraSpec& lora);

// Views of `flat` [NumAdapterParameters] by layer and target.
AdapterTensors ViewAdapter(const at::Tensor& flat, const ModelSpec& model, const LoraSpec& lora);

// Weights of shape `lora` that lie in `flat`.
std::shared_ptr<AdapterWeights> MakeAdapterWeights(const at::Tensor& flat, const ModelSpec& model,
                                                   const LoraSpec& lora);

}  // namespace lathe::worker
