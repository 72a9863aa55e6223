// The weights of one LoRA adapter as passes read them, and gradients of the same shape.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// The linears of one layer that LoRA may adapt, in the order of the flat parameter buffer.
enum class LoraTarget { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr int kNumLoraTargets = 7;

// y += (x A^T) B^T · scaling. Both undefined when the target is not trained.
struct LoraPair {
  at::Tensor a;  // [rank, in_features]
  // [rank, out_features]: sums over out_features and sums over the rank both read B this way.
  at::Tensor b_t;
  bool defined() const { return a.defined(); }
  at::Tensor b() const { return b_t.t(); }  // [out_features, rank], a view
};

using LayerLora = std::array<LoraPair, kNumLoraTargets>;

// Views into one flat buffer `flat`, laid out as AdapterLayout says; each B transposed.
struct AdapterTensors {
  at::Tensor flat;  // [num_parameters]
  std::vector<LayerLora> layers;
  LoraPair unembed;
};

// A sampler version is this, and so is what the trainer computes with. Never written while anybody
// but its adapter holds it.
struct AdapterWeights {
  LoraSpec lora;
  double scaling = 1.0;    // alpha / rank
  AdapterTensors tensors;  // compute dtype

  int64_t num_bytes() const { return static_cast<int64_t>(tensors.flat.nbytes()); }
};

// fp32 accumulators.
struct AdapterGradients {
  AdapterTensors tensors;
};

}  // namespace lathe::worker
