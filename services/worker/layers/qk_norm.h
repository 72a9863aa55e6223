// Queries and keys as attention wants them: rms-normed per head, then rotated by their position.
#pragma once

#include "services/worker/aten.h"
#include "services/worker/layers/rope.h"

namespace lathe::worker {

// q [T, Hq, D], k [T, Hk, D] fp32; column slices of a wider matrix are fine.
struct QkHeads {
  at::Tensor q;
  at::Tensor k;
};

struct QkNormWeights {
  const at::Tensor& q_weight;  // [D]
  const at::Tensor& k_weight;
  double eps = 0;
};

// Whether the kernels understand x [T, H, D].
bool HasCpuHeads(const at::Tensor& x);

// ApplyRope(RmsNorm(x)) of both; positions [T] int64.
QkHeads NormRope(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                 const at::Tensor& positions);

// Writes dL/d(heads) over `heads`, as given to NormRope; d is dL/d(result), contiguous, and of no
// use afterwards.
void NormRopeBackward(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                      const at::Tensor& positions, const QkHeads& d);

// The same by torch operations, on any device.
void NormRopeBackwardByTorch(const QkHeads& heads, const QkNormWeights& weights,
                             const RopeTable& rope, const at::Tensor& positions, const QkHeads& d);
QkHeads NormRopeByTorch(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                        const at::Tensor& positions);

}  // namespace lathe::worker
