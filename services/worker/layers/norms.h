// Root-mean-square normalisation over the last dimension (arXiv:1910.07467).
#pragma once

#include <optional>

#include "services/worker/layers/rope.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// y = x / sqrt(mean(x^2) + eps) * weight, rounded to `dtype` if given.
//   x [..., D] fp32;  weight [D] fp32
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps,
                   std::optional<at::ScalarType> dtype = std::nullopt);

// Returns residual [T, D] + RmsNorm(x), in fp32.
at::Tensor RmsNormOnto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       double eps);

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

// q [T, Hq, D], k [T, Hk, D] of one dtype; both may be column slices of a wider matrix.
struct QkHeads {
  at::Tensor q;
  at::Tensor k;
};

// Steps between the projections and attention.
struct QkPreparation {
  at::Tensor q_norm;  // [D], weight of an RMS norm of each head; undefined: no norm
  at::Tensor k_norm;  // undefined if q_norm is
  double eps = 0;
  const RopeTable* rope = nullptr;  // null: no rope
  at::Tensor positions;             // [T] int64, for rope
};

// QkPreparation for kernels; null where a step is left out.
struct PreparationPointers {
  const float* q_weight = nullptr;
  const float* k_weight = nullptr;
  float eps = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int64_t* positions = nullptr;
};
PreparationPointers PointersOf(const QkPreparation& preparation);

// Returns true if the kernels can read x [T, H, D].
bool HasCpuHeads(const at::Tensor& x);

// Returns ApplyRope(RmsNorm(x)) of both, without the steps that `preparation` leaves out.
QkHeads PrepareQk(const QkHeads& heads, const QkPreparation& preparation);

// Writes dL/d(heads) over `heads`, which are the inputs of PrepareQk. `d` is dL/d(result),
// contiguous; its contents are undefined afterwards.
void PrepareQkBackward(const QkHeads& heads, const QkPreparation& preparation, const QkHeads& d);

// The same functions by torch operations, on any device.
QkHeads PrepareQkByTorch(const QkHeads& heads, const QkPreparation& preparation);
void PrepareQkBackwardByTorch(const QkHeads& heads, const QkPreparation& preparation,
                              const QkHeads& d);

}  // namespace lathe::worker
