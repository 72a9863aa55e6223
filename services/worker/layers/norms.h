// Root-mean-square normalisation over the last dimension (arXiv:1910.07467).
#pragma once

#include "services/worker/layers/rope.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// y = x / sqrt(mean(x^2) + eps) * weight.
//   x [..., D] fp32;  weight [D] fp32
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// RmsNorm by torch operations, on any device.
at::Tensor RmsNormByTorch(const at::Tensor& x, const at::Tensor& weight, double eps);

// Returns dL/dx from dL/dy; x is the input of RmsNorm. The weight is frozen.
at::Tensor RmsNormBackward(const at::Tensor& x, const at::Tensor& weight, double eps,
                           const at::Tensor& dy);

// Writes RmsNormBackward plus `residual` [T, D] over dy [T, D] and returns it.
at::Tensor RmsNormBackwardOnto(const at::Tensor& residual, const at::Tensor& x,
                               const at::Tensor& weight, double eps, at::Tensor dy);

// RmsNormBackward by torch operations, on any device.
at::Tensor RmsNormBackwardByTorch(const at::Tensor& x, const at::Tensor& weight, double eps,
                                  const at::Tensor& dy);

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
