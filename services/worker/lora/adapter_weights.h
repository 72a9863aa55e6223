// The weights of one LoRA adapter for use in passes, and gradients of the same shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/worker/ops/training.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// One adapted linear: y += (x A^T) B^T · scaling. Both tensors are undefined if it is not trained.
struct LoraPair {
  at::Tensor a;  // [rank, in_features]
  // B^T, [rank, out_features]. Sums over out_features and sums over the rank both read it row by
  // row.
  at::Tensor b_t;
  bool defined() const { return a.defined(); }
  at::Tensor b() const { return b_t.t(); }  // [out_features, rank], a view
};

// Views into one buffer `flat` in the order of AdapterLayout; each B is transposed.
struct AdapterTensors {
  at::Tensor flat;                // [num_parameters]
  std::vector<LoraPair> linears;  // by row of the model's LinearTable
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
