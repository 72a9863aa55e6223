// Immutable compute copy of one LoRA adapter, and gradients of the same shape.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "services/worker/ops.h"

namespace lathe::worker {

// The linears of one layer that LoRA may adapt, in the order of the flat parameter buffer.
enum class LoraTarget { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kNumLoraTargets = 7;

// y += (x A^T) B^T · scaling. Both undefined when the target is not trained.
struct LoraPair {
  at::Tensor a;  // [rank, in_features]
  at::Tensor b;  // [out_features, rank]
  // [rank, out_features], b as the kernels of a CPU read it; in compute copies there, else
  // undefined.
  at::Tensor b_t;
  bool defined() const { return a.defined(); }
};

using LayerLora = std::array<LoraPair, kNumLoraTargets>;

// Views into one flat buffer `flat`, in the order: layer 0 q.A q.B k.A k.B … down.A down.B,
// layer 1 …, unembed.A unembed.B.
struct AdapterTensors {
  at::Tensor flat;  // [num_parameters]
  std::vector<LayerLora> layers;
  LoraPair unembed;
};

// A sampler version and the trainer's compute copy are this. Never written after it was made.
struct AdapterWeights {
  LoraSpec lora;
  double scaling = 1.0;    // alpha / rank
  AdapterTensors tensors;  // compute dtype
  at::Tensor flat_b_t;     // what the `b_t` of all pairs lie in; undefined without them

  int64_t num_bytes() const {
    return static_cast<int64_t>(tensors.flat.nbytes() +
                                (flat_b_t.defined() ? flat_b_t.nbytes() : 0));
  }
};

// fp32 accumulators.
struct AdapterGradients {
  AdapterTensors tensors;
};

}  // namespace lathe::worker
