// Low-rank additions to base linears over segments of packed rows.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/models/model.h"

namespace lathe::worker {

// Picks the pair of a segment's adapter for one linear.
//   layer   layer index, or kUnembed (target is then ignored)
struct LoraSlot {
  static constexpr int64_t kUnembed = -1;
  int64_t layer = kUnembed;
  LoraTarget target = LoraTarget::kQ;

  const LoraPair& Of(const AdapterTensors& tensors) const {
    return layer == kUnembed ? tensors.unembed : tensors.layers[layer][static_cast<size_t>(target)];
  }
};

// One of the linears that read the same x.
//   y  [T, out_features] fp32, its output or dL/d(output); may be a column slice of a wider matrix
struct LoraPart {
  LoraSlot slot;
  at::Tensor y;
};

// part.y += (x A^T) B^T * scaling for every part, on the rows of each segment whose adapter has the
// part's slot. Ranks may differ between segments and parts; rows without an adapter are not
// touched.
//   x  [T, in_features]
// On a CPU a row's bits do not depend on the rows and segments around it.
void AddLora(const at::Tensor& x, const std::vector<Segment>& segments,
             const std::vector<LoraPart>& parts);

// Backward of AddLora, part.y being dL/d(output): dx += its share through the pairs, and dA, dB are
// added to gradients[segment.gradient_index]. Segments without a gradient index are skipped.
//   x  [T, in_features], as given to AddLora;  dx [T, in_features], in place
// On a CPU each element of dA and dB is one chain of multiply-adds over the rows in order that
// starts with what the buffer holds: rows cut into several calls give the bits of one call.
void AddLoraBackward(const at::Tensor& x, const std::vector<Segment>& segments,
                     const std::vector<LoraPart>& parts,
                     const std::vector<AdapterGradients*>& gradients, at::Tensor dx);

// The same by torch operations, on any device; the order of sums is torch's.
void AddLoraByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                    const std::vector<LoraPart>& parts);
void AddLoraBackwardByTorch(const at::Tensor& x, const std::vector<Segment>& segments,
                            const std::vector<LoraPart>& parts,
                            const std::vector<AdapterGradients*>& gradients, at::Tensor dx);

}  // namespace lathe::worker
