// Sums and maxima over ranks, computed in rank order whichever rank computes them.
#pragma once

#include <vector>

#include "services/worker/collectives/collectives.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + …, or the maximum. Flat CPU tensors of one
// dtype and size; `out` may be one of `parts`. bfloat16 is summed in float32 and rounded once.
void ReduceInRankOrder(CollectiveKind kind, const std::vector<at::Tensor>& parts, at::Tensor& out);

}  // namespace lathe::worker
