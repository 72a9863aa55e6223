// Causal attention over packed sequences with grouped key/value heads (arXiv:2305.13245).
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/spec/attention_spec.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct AttentionOutput {
  at::Tensor out;  // [T, Hq, D]
  // Logarithm of each row's softmax denominator, fp32, for the backward step: [T, Hq] to the base 2
  // from our kernels, [Hq, T] to the base e from flash attention. Undefined when torch's operations
  // computed the forward step: their backward recomputes the weights.
  at::Tensor log_sums;
};

// Computes softmax(scale q k^T) v. Each position attends to itself and to the positions before it
// in its sequence, or only to those in its window. `spec` gives scale and window; the tensors give
// the heads.
//   q [T, Hq, D];  k, v [T, Hk, D], Hk divides Hq;  cu_seqlens [S + 1], rows of sequence s are
//   [cu[s], cu[s+1])
// fp32 tensors on a CPU use our kernels, and `arithmetic` selects their products; bf16 products
// require an even D. The kernels' cost grows with the pairs of tokens that attend, and they keep
// nothing of the size of a score matrix. A sequence's bits do not depend on its neighbours or on
// the threads. On a GPU torch's flash attention computes if `arithmetic` is bf16: products of bf16,
// sums in fp32. In all other cases torch's operations compute, in the tensors' dtype.
AttentionOutput CausalAttention(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<int64_t>& cu_seqlens,
                                MatmulArithmetic arithmetic);

struct AttentionGradients {
  at::Tensor dq;  // [T, Hq, D]
  at::Tensor dk;  // [T, Hk, D]
  at::Tensor dv;
};

// Computes the gradients of CausalAttention for dL/dout [T, Hq, D]. `output` is the result of
// CausalAttention for the same `spec` and `arithmetic`.
AttentionGradients CausalAttentionBackward(const AttentionSpec& spec, const at::Tensor& q,
                                           const at::Tensor& k, const at::Tensor& v,
                                           const std::vector<int64_t>& cu_seqlens,
                                           const AttentionOutput& output, const at::Tensor& dout,
                                           MatmulArithmetic arithmetic);

// Returns true if flash attention can compute attention with these queries.
bool HasFlashAttention(const at::Tensor& q, MatmulArithmetic arithmetic);

// The same functions by torch's flash attention, on a GPU. Results have q's dtype. Equal inputs
// give equal bits.
AttentionOutput CausalAttentionByFlash(const AttentionSpec& spec, const at::Tensor& q,
                                       const at::Tensor& k, const at::Tensor& v,
                                       const std::vector<int64_t>& cu_seqlens);

AttentionGradients CausalAttentionBackwardByFlash(const AttentionSpec& spec, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const std::vector<int64_t>& cu_seqlens,
                                                  const AttentionOutput& output,
                                                  const at::Tensor& dout);

// The same functions by torch operations: for devices other than a CPU, and as a reference in
// tests. Neighbouring sequences of equal length share matrix products, so a caller that can choose
// the order should sort by length. At any time only one tile of queries has its scores in memory.
at::Tensor CausalAttentionByTorch(const AttentionSpec& spec, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<int64_t>& cu_seqlens);

AttentionGradients CausalAttentionBackwardByTorch(const AttentionSpec& spec, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const std::vector<int64_t>& cu_seqlens,
                                                  const at::Tensor& dout);

}  // namespace lathe::worker
