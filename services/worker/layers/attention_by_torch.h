// Attention by torch operations: for devices other than a CPU, and as a reference in tests.
// Arguments and results are those of attention.h.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/layers/attention.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Neighbouring sequences of equal length share matrix products, so a caller that can choose the
// order should sort by length. At any time only one tile of queries has its scores in memory.
at::Tensor CausalAttentionByTorch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<int64_t>& cu_seqlens);

AttentionGradients CausalAttentionBackwardByTorch(const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v,
                                                  const std::vector<int64_t>& cu_seqlens,
                                                  const at::Tensor& dout);

}  // namespace lathe::worker
