// Rows of several requests that pass through the model together.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct AdapterWeights;
class LoraSlots;

// Rows [begin, end) of the packed batch use `adapter`; nullptr means the base model.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  const AdapterWeights* adapter = nullptr;
  // Index into the caller's list of AdapterGradients. -1: no gradient, and dL/dy of these rows is
  // zero.
  int64_t gradient_index = -1;
  // For decode passes on a GPU, replaces `adapter`: each row has its own adapter. The batch then
  // has only this segment.
  const LoraSlots* slots = nullptr;
};

// Sequences packed end to end, without padding.
struct PackedRows {
  at::Tensor tokens;                // [T] int64, position in its sequence
  at::Tensor positions;             // [T] int64, place in the own sequence
  std::vector<int64_t> cu_seqlens;  // [S + 1]; rows of sequence s are [cu[s], cu[s+1])
  std::vector<Segment> segments;    // cover [0, T) in order
};

}  // namespace lathe::worker
