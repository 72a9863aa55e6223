// Prepares queries and keys for attention: RMS norm per head, then rotation by position.
#pragma once

#include "services/worker/layers/rope.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// q [T, Hq, D], k [T, Hk, D] fp32; both may be column slices of a wider matrix.
struct QkHeads {
  at::Tensor q;
  at::Tensor k;
};

struct QkNormWeights {
  const at::Tensor& q_weight;  // [D]
  const at::Tensor& k_weight;
  double eps = 0;
};

// Returns true if the kernels can read x [T, H, D].
bool HasCpuHeads(const at::Tensor& x);

// Returns ApplyRope(RmsNorm(x)) of both; positions [T] int64.
QkHeads NormRope(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                 const at::Tensor& positions);

// Writes dL/d(heads) over `heads`, which are the inputs of NormRope. `d` is dL/d(result),
// contiguous; its contents are undefined afterwards.
void NormRopeBackward(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                      const at::Tensor& positions, const QkHeads& d);

// The same functions by torch operations, on any device.
void NormRopeBackwardByTorch(const QkHeads& heads, const QkNormWeights& weights,
                             const RopeTable& rope, const at::Tensor& positions, const QkHeads& d);
QkHeads NormRopeByTorch(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                        const at::Tensor& positions);

}  // namespace lathe::worker
