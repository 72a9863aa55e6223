// Root-mean-square normalisation over the last dimension (arXiv:1910.07467).
#pragma once

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

}  // namespace lathe::worker
