// Causal attention over packed sequences with grouped key/value heads (arXiv:2305.13245).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace lathe::worker {

// softmax(q k^T / sqrt(D)) v, each position seeing itself and what precedes it in its sequence.
//   q [T, Hq, D];  k, v [T, Hk, D], Hk divides Hq;  cu_seqlens [S + 1], rows of sequence s are
//   [cu[s], cu[s+1])
//   returns [T, Hq, D]
// Neighbouring sequences of equal length share matrix products, so callers that can choose the
// order should sort by length. Scores live for one tile of queries only.
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<int64_t>& cu_seqlens);

struct AttentionGradients {
  at::Tensor dq;  // [T, Hq, D]
  at::Tensor dk;  // [T, Hk, D]
  at::Tensor dv;
};

// Gradients of CausalAttention for dL/dout [T, Hq, D]. Computes the scores again.
AttentionGradients CausalAttentionBackward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v,
                                           const std::vector<int64_t>& cu_seqlens,
                                           const at::Tensor& dout);

}  // namespace lathe::worker
