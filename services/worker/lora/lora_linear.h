// Low-rank updates of base linears over segments of packed rows.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/spec/packed_rows.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// One of several linears that read the same x.
//   linear  row of the model's LinearTable
//   y       [T, out_features] fp32: the output or dL/d(output); may be a column slice of a wider
//           matrix
struct LoraPart {
  int64_t linear;
  at::Tensor y;

  const LoraPair& Of(const AdapterTensors& tensors) const { return tensors.linears[linear]; }
};

// Adds (x A^T) B^T * scaling to part.y for every part, in the rows of segments whose adapter has
// the part's linear. Ranks may differ between segments and parts. Rows without an adapter are not
// touched.
//   x  [T, in_features]
// On a CPU a row's bits do not depend on the rows and segments around it.
void AddLora(const at::Tensor& x, const std::vector<Segment>& segments,
             const std::vector<LoraPart>& parts);

// Backward of AddLora; part.y is dL/d(output). Adds the adapters' share to dx, and dA and dB to
// gradients[segment.gradient_index]. Skips segments without a gradient index.
//   x  [T, in_features], the input of AddLora;  dx [T, in_features], updated in place
// On a CPU each element of dA and dB is one chain of multiply-adds over the rows in order, starting
// from the buffer's value. So several calls over parts of the rows give the bits of one call.
void AddLoraBackward(const at::Tensor& x, const std::vector<Segment>& segments,
                     const std::vector<LoraPart>& parts,
                     const std::vector<AdapterGradients*>& gradients, at::Tensor dx);

// The same functions by torch operations, on any device. Torch determines the order of sums.
void AddLoraByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                    const std::vector<LoraPart>& parts);
void AddLoraBackwardByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                            const std::vector<LoraPart>& parts,
                            const std::vector<AdapterGradients*>& gradients, at::Tensor dx);

}  // namespace lathe::worker
