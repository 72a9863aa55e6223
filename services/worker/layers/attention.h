// Causal attention over packed sequences with grouped key/value heads (arXiv:2305.13245).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace lathe::worker {

struct AttentionOutput {
  at::Tensor out;  // [T, Hq, D]
  // [T, Hq] fp32, for the backward step: log2 of the sums that the weights were divided by.
  // Undefined where torch did the work, which computes the weights again from nothing.
  at::Tensor log_sums;
};

// softmax(q k^T / sqrt(D)) v, each position seeing itself and what precedes it in its sequence.
//   q [T, Hq, D];  k, v [T, Hk, D], Hk divides Hq;  cu_seqlens [S + 1], rows of sequence s are
//   [cu[s], cu[s+1])
// fp32 on a CPU takes our kernels: the cost is the sum of the squared lengths, nothing of the size
// of a score matrix is kept, and a sequence's bits do not depend on its neighbours or the threads.
AttentionOutput CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const std::vector<int64_t>& cu_seqlens);

struct AttentionGradients {
  at::Tensor dq;  // [T, Hq, D]
  at::Tensor dk;  // [T, Hk, D]
  at::Tensor dv;
};

// Gradients of CausalAttention for dL/dout [T, Hq, D]; `output` is what it returned.
AttentionGradients CausalAttentionBackward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v,
                                           const std::vector<int64_t>& cu_seqlens,
                                           const AttentionOutput& output, const at::Tensor& dout);

}  // namespace lathe::worker
