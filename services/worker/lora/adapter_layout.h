// The matrices of an adapter, their names, and their places in a rank's flat parameter buffer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/spec/model_part.h"

namespace lathe::worker {

// One LoRA factor on a rank of axis tp: A [rank, in_features] or B [out_features, rank]. It is
// whole, or cut along its features like the base model's matrix. The flat buffer holds B
// transposed.
struct AdapterMatrix {
  std::string linear_name;  // "model.layers.0.self_attn.q_proj", or "lm_head"
  int64_t linear = 0;       // row of the model's LinearTable
  bool is_b = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t offset = 0;  // first element in the flat buffer

  Shard features;              // columns of A, rows of B; the padding stays zero
  int64_t whole_features = 0;  // features of the whole factor
  // Number of adjacent ranks that hold the same part. Each computes a share of its gradient, and
  // the gradient is the sum of the shares.
  int64_t num_holders = 1;

  int64_t num_elements() const { return rows * cols; }
  // E.g. "model.layers.0.self_attn.q_proj.lora_A". Initial values and checkpoints use this name.
  std::string name() const { return linear_name + (is_b ? ".lora_B" : ".lora_A"); }

  // Returns a view [rows, cols] of the factor in `flat` [NumAdapterParameters].
  at::Tensor Of(const at::Tensor& flat) const {
    const at::Tensor part = flat.narrow(0, offset, num_elements());
    return is_b ? part.view({cols, rows}).t() : part.view({rows, cols});
  }
  int64_t lora_rank() const { return is_b ? cols : rows; }
  int64_t num_whole_elements() const { return lora_rank() * whole_features; }
  // Returns a view [lora_rank, features] without padding. A and B have the same form in the buffer.
  at::Tensor FactorOf(const at::Tensor& flat) const {
    return flat.narrow(0, offset, num_elements())
        .view({lora_rank(), features.padded_size()})
        .narrow(1, 0, features.size);
  }
  // Returns the features that rank `tp_index` holds. Parts are equal except for the padding.
  Shard FeaturesOf(int64_t tp_index) const {
    const int64_t begin = tp_index / num_holders * features.padded_size();
    const int64_t size = std::min(features.padded_size(), whole_features - begin);
    return {.begin = begin, .size = size, .padding = features.padded_size() - size};
  }
};

// Sizes in elements. A flat buffer consists of three ranges: summed, shared, sharded. With one rank
// all of it is sharded.
struct AdapterSizes {
  int64_t summed = 0;   // held by every rank: gradients are sums over axis tp
  int64_t shared = 0;   // held by some ranks: B of keys and values if ranks share KV heads
  int64_t sharded = 0;  // held by this rank only: gradients are complete

  int64_t whole = 0;   // sum over all factors, uncut
  int64_t shares = 0;  // the same, with each factor counted num_holders times

  int64_t total() const { return summed + shared + sharded; }
};

// Returns all matrices of an adapter of shape `lora` in file order: A and B of each row of the
// model's LinearTable that `lora` trains. Each range of the buffer keeps this order.
std::vector<AdapterMatrix> AdapterLayout(const ModelPart& model, const LoraSpec& lora);

// Returns the sizes of the buffer's ranges, the same on every rank.
AdapterSizes SizesOfAdapter(const ModelPart& model, const LoraSpec& lora);

// Returns the length of the flat buffer.
int64_t NumAdapterParameters(const ModelPart& model, const LoraSpec& lora);

// Returns views of `flat` [NumAdapterParameters] by row of the LinearTable.
AdapterTensors ViewAdapter(const at::Tensor& flat, const ModelPart& model, const LoraSpec& lora);

// Returns weights of shape `lora` that are views of `flat`.
std::shared_ptr<AdapterWeights> MakeAdapterWeights(const at::Tensor& flat, const ModelPart& model,
                                                   const LoraSpec& lora);

}  // namespace lathe::worker
