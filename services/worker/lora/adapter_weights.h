// The weights of one LoRA adapter for use in passes, and gradients of the same shape.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/ops/training.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// The linears of one layer that LoRA may adapt, in the flat buffer's order.
enum class LoraTarget { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kNumLoraTargets = 7;

// One adapted linear: y += (x A^T) B^T · scaling. Both tensors are undefined if it is not trained.
struct LoraPair {
  at::Tensor a;  // [rank, in_features]
  // B^T, [rank, out_features]. Sums over out_features and sums over the rank both read it row by
  // row.
  at::Tensor b_t;
  bool defined() const { return a.defined(); }
  at::Tensor b() const { return b_t.t(); }  // [out_features, rank], a view
};

using LayerLora = std::array<LoraPair, kNumLoraTargets>;

// Views into one buffer `flat` in the order of AdapterLayout; each B is transposed.
struct AdapterTensors {
  at::Tensor flat;  // [num_parameters]
  std::vector<LayerLora> layers;
  LoraPair unembed;
};

// One version of an adapter's weights, for training passes or as a sampler version. Only its
// adapter may write it, and only while no other owner holds it.
struct AdapterWeights {
  LoraSpec lora;
  double scaling = 1.0;    // alpha / rank
  AdapterTensors tensors;  // fp32

  int64_t num_bytes() const { return static_cast<int64_t>(tensors.flat.nbytes()); }
};

// Gradient accumulators, fp32.
struct AdapterGradients {
  AdapterTensors tensors;
};

}  // namespace lathe::worker
