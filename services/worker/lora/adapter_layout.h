// Which matrices one adapter has, their names, and where they lie in the flat parameter buffer of a
// rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/models/model_part.h"

namespace lathe::worker {

// One LoRA factor as a rank of axis tp holds it: A [rank, in_features] or B [out_features, rank],
// cut along its features as the base's matrix is, or whole. The flat buffer has B transposed.
struct AdapterMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj", or "lm_head"
  int64_t layer = -1;  // -1: the unembedding
  LoraTarget target = LoraTarget::kQ;
  bool is_b = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t offset = 0;  // first element in the flat buffer

  Shard features;              // columns of A, rows of B; the padding stays zero
  int64_t whole_features = 0;  // of the factor that is cut
  // Ranks side by side that hold the same part. Each computes a share of its gradient: their sum.
  int64_t num_holders = 1;

  int64_t num_elements() const { return rows * cols; }
  // "model.layers.0.self_attn.q_proj.lora_A"; initial values and checkpoints go by it.
  std::string name() const { return module + (is_b ? ".lora_B" : ".lora_A"); }

  // View [rows, cols] of its part of `flat` [NumAdapterParameters].
  at::Tensor Of(const at::Tensor& flat) const {
    const at::Tensor part = flat.narrow(0, offset, num_elements());
    return is_b ? part.view({cols, rows}).t() : part.view({rows, cols});
  }
  int64_t lora_rank() const { return is_b ? cols : rows; }
  int64_t num_whole_elements() const { return lora_rank() * whole_features; }
  // View [lora_rank, features], as A and B lie alike in the buffer, without padding.
  at::Tensor FactorOf(const at::Tensor& flat) const {
    return flat.narrow(0, offset, num_elements())
        .view({lora_rank(), features.padded_size()})
        .narrow(1, 0, features.size);
  }
  // What rank `tp_index` has in place of `features`: parts are equal but for the padding.
  Shard FeaturesOf(int64_t tp_index) const {
    const int64_t begin = tp_index / num_holders * features.padded_size();
    const int64_t size = std::min(features.padded_size(), whole_features - begin);
    return {.begin = begin, .size = size, .padding = features.padded_size() - size};
  }
};

// In numbers. A flat buffer is three ranges, by who holds the same of a factor; of one rank all is
// sharded.
struct AdapterSizes {
  int64_t summed = 0;   // every rank: gradients are sums over axis tp
  int64_t shared = 0;   // some: B of keys and values where there are more ranks than KV heads
  int64_t sharded = 0;  // this rank alone: gradients are complete

  int64_t whole = 0;   // of the factors that are cut, all together
  int64_t shares = 0;  // the same, each as often as ranks of tp hold the same of it

  int64_t total() const { return summed + shared + sharded; }
};

// All matrices of an adapter of shape `lora`, in the order of files: layer 0 q.A q.B k.A k.B …
// down.A down.B, layer 1 …, unembed.A unembed.B. In each range of the buffer they keep it.
std::vector<AdapterMatrix> AdapterLayout(const ModelPart& model, const LoraSpec& lora);

// The same on every rank.
AdapterSizes SizesOfAdapter(const ModelPart& model, const LoraSpec& lora);

// Length of the flat buffer.
int64_t NumAdapterParameters(const ModelPart& model, const LoraSpec& lora);

// Views of `flat` [NumAdapterParameters] by layer and target.
AdapterTensors ViewAdapter(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora);

// Weights of shape `lora` that lie in `flat`.
std::shared_ptr<AdapterWeights> MakeAdapterWeights(const at::Tensor& flat, const ModelPart& model,
                                                   const LoraSpec& lora);

}  // namespace lathe::worker
