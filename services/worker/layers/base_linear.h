// Products with the frozen matrices of a base model, in the dtype in which they are stored.
#pragma once

#include "services/worker/kernels/cpu/matmul/weight_matmul.h"
#include "services/worker/layers/base_weight.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// On a CPU activations are fp32 in and out. A fp32 matrix is multiplied in fp32. A bf16 matrix
// stays bf16 in memory. On a CPU `arithmetic` selects whether the matrix is widened to fp32 or the
// activations are rounded to bf16. On another device the activations may be bf16 or are rounded,
// sums are fp32, and the result is rounded to `dtype`.
//
// y [T, N] = x [T, K] w^T + bias
//   w     [N, K] fp32 or bf16
//   bias  [N] fp32, may be undefined
at::Tensor BaseLinear(const at::Tensor& x, const BaseWeight& w, const at::Tensor& bias,
                      MatmulArithmetic arithmetic, at::ScalarType dtype = at::kFloat);

// y [T, N] = x w^T; rows of y may be strided.
void BaseLinearInto(const at::Tensor& x, const BaseWeight& w, MatmulArithmetic arithmetic,
                    at::Tensor y);

// residual [T, N] + x w^T + bias, a new tensor in fp32.
at::Tensor BaseLinearOnto(const at::Tensor& residual, const at::Tensor& x, const BaseWeight& w,
                          const at::Tensor& bias, MatmulArithmetic arithmetic);

// dx [T, K] = dy [T, N] w
at::Tensor BaseLinearBackward(const at::Tensor& dy, const BaseWeight& w,
                              MatmulArithmetic arithmetic, at::ScalarType dtype = at::kFloat);

// dx [T, K] += dy [T, N] w
void AddBaseLinearBackward(const at::Tensor& dy, const BaseWeight& w, MatmulArithmetic arithmetic,
                           at::Tensor dx);

}  // namespace lathe::worker
