// Causal attention over packed sequences with grouped key/value heads (arXiv:2305.13245).
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/kernels/cpu/weight_matmul.h"

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
// fp32 tensors on a CPU take our kernels, whose products are as `arithmetic` says (of bf16: D is
// even): the cost is the sum of the squared lengths, nothing of the size of a score matrix is kept,
// and a sequence's bits do not depend on its neighbours or the threads. Where torch does the work,
// products are of the tensors' dtype.
AttentionOutput CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const std::vector<int64_t>& cu_seqlens,
                                MatmulArithmetic arithmetic);

struct AttentionGradients {
  at::Tensor dq;  // [T, Hq, D]
  at::Tensor dk;  // [T, Hk, D]
  at::Tensor dv;
};

// Gradients of CausalAttention for dL/dout [T, Hq, D]; `output` is what it returned for the same
// `arithmetic`.
AttentionGradients CausalAttentionBackward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v,
                                           const std::vector<int64_t>& cu_seqlens,
                                           const AttentionOutput& output, const at::Tensor& dout,
                                           MatmulArithmetic arithmetic);

}  // namespace lathe::worker
