// Low-rank additions to a base linear over segments of packed rows.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

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

// y += (x A^T) B^T * scaling on the rows of each segment that has an adapter with this slot. Ranks
// may differ between segments; rows without an adapter are not touched.
//   x  [T, in_features]
//   y  [T, out_features], may be a column slice of a wider matrix; changed in place
void AddLora(const at::Tensor& x, const std::vector<Segment>& segments, const LoraSlot& slot,
             at::Tensor y);

// Backward of AddLora: dx += dy's share through the pair, and dA, dB are added to
// gradients[segment.gradient_index]. Segments without a gradient index are skipped.
//   x  [T, in_features], as given to AddLora;  dy [T, out_features];  dx [T, in_features], in place
void AddLoraBackward(const at::Tensor& x, const at::Tensor& dy,
                     const std::vector<Segment>& segments, const LoraSlot& slot,
                     std::vector<AdapterGradients*>& gradients, at::Tensor dx);

}  // namespace lathe::worker
