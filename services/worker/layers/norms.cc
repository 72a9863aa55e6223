#include "services/worker/layers/norms.h"

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {

namespace {

// 1 / sqrt(mean(x^2) + eps), [..., 1].
at::Tensor InverseRms(const at::Tensor& x, double eps) {
  return at::square(x).mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

bool HasCpuMatrix(const at::Tensor& x) { return x.dim() == 2 && HasCpuRows(x); }

// Writes dx, plus `residual` if defined. dx may alias dy.
void BackwardByKernel(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                      double eps, const at::Tensor& dy, const at::Tensor& dx) {
  const bool is_onto = residual.defined();
  const RmsNormBackwardTask task = {
      .x = x.const_data_ptr<float>(),
      .x_stride = x.stride(0),
      .weight = weight.const_data_ptr<float>(),
      .dy = dy.const_data_ptr<float>(),
      .dy_stride = dy.stride(0),
      .residual = is_onto ? residual.const_data_ptr<float>() : nullptr,
      .residual_stride = is_onto ? residual.stride(0) : 0,
      .dx = dx.mutable_data_ptr<float>(),
      .dx_stride = dx.stride(0),
      .width = x.size(1),
      .eps = static_cast<float>(eps)};
  ForRows(x.size(0), x.size(1),
          [&](int64_t begin, int64_t end) { RmsNormBackwardRows(task, begin, end); });
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!HasCpuMatrix(x)) return RmsNormByTorch(x, weight, eps);
  at::Tensor y = at::empty(x.sizes(), x.options());
  const RmsNormTask task = {.x = x.const_data_ptr<float>(),
                            .x_stride = x.stride(0),
                            .weight = weight.const_data_ptr<float>(),
                            .y = y.mutable_data_ptr<float>(),
                            .width = x.size(1),
                            .eps = static_cast<float>(eps)};
  ForRows(x.size(0), x.size(1), [&](int64_t begin, int64_t end) { RmsNormRows(task, begin, end); });
  return y;
}

at::Tensor RmsNormByTorch(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return at::mul(x, InverseRms(x, eps)).mul_(weight);
}

at::Tensor RmsNormBackward(const at::Tensor& x, const at::Tensor& weight, double eps,
                           const at::Tensor& dy) {
  if (!HasCpuMatrix(x) || !HasCpuRows(dy)) return RmsNormBackwardByTorch(x, weight, eps, dy);
  at::Tensor dx = at::empty(x.sizes(), x.options());
  BackwardByKernel(/*residual=*/{}, x, weight, eps, dy, dx);
  return dx;
}

at::Tensor RmsNormBackwardOnto(const at::Tensor& residual, const at::Tensor& x,
                               const at::Tensor& weight, double eps, at::Tensor dy) {
  if (!HasCpuMatrix(x) || !HasCpuRows(dy) || !HasCpuRows(residual)) {
    return dy.copy_(RmsNormBackwardByTorch(x, weight, eps, dy)).add_(residual);
  }
  BackwardByKernel(residual, x, weight, eps, dy, dy);
  return dy;
}

at::Tensor RmsNormBackwardByTorch(const at::Tensor& x, const at::Tensor& weight, double eps,
                                  const at::Tensor& dy) {
  // With s = 1/rms and g = dy * weight: dx = s g - x s^3 mean(g x).
  const at::Tensor s = InverseRms(x, eps);
  const at::Tensor g = at::mul(dy, weight);
  const at::Tensor along_x = at::mul(g, x).mean(-1, /*keepdim=*/true).mul_(at::pow(s, 3)).neg_();
  return g.mul_(s).addcmul_(x, along_x);
}

namespace {

bool IsIdentity(const QkPreparation& preparation) {
  return !preparation.q_norm.defined() && preparation.rope == nullptr;
}

}  // namespace

PreparationPointers PointersOf(const QkPreparation& preparation) {
  const auto data = [](const at::Tensor& x) {
    return x.defined() ? x.const_data_ptr<float>() : nullptr;
  };
  PreparationPointers pointers = {.q_weight = data(preparation.q_norm),
                                  .k_weight = data(preparation.k_norm),
                                  .eps = static_cast<float>(preparation.eps)};
  if (preparation.rope != nullptr) {
    pointers.cos = data(preparation.rope->cos());
    pointers.sin = data(preparation.rope->sin());
    pointers.positions = preparation.positions.const_data_ptr<int64_t>();
  }
  return pointers;
}

namespace {

at::Tensor PrepareByKernel(const at::Tensor& x, const float* weight,
                           const PreparationPointers& pointers) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const PrepareHeadsTask task = {.x = x.const_data_ptr<float>(),
                                 .x_stride = x.stride(0),
                                 .weight = weight,
                                 .cos = pointers.cos,
                                 .sin = pointers.sin,
                                 .positions = pointers.positions,
                                 .y = y.mutable_data_ptr<float>(),
                                 .num_heads = x.size(1),
                                 .head_dim = x.size(2),
                                 .eps = pointers.eps};
  ForRows(x.size(0), x.size(1) * x.size(2),
          [&](int64_t begin, int64_t end) { PrepareHeadsRows(task, begin, end); });
  return y;
}

void PrepareBackwardByKernel(const at::Tensor& x, const float* weight,
                             const PreparationPointers& pointers, const at::Tensor& dy) {
  const PrepareHeadsBackwardTask task = {.x = x.const_data_ptr<float>(),
                                         .x_stride = x.stride(0),
                                         .weight = weight,
                                         .cos = pointers.cos,
                                         .sin = pointers.sin,
                                         .positions = pointers.positions,
                                         .dy = dy.mutable_data_ptr<float>(),
                                         .dx = x.mutable_data_ptr<float>(),
                                         .dx_stride = x.stride(0),
                                         .num_heads = x.size(1),
                                         .head_dim = x.size(2),
                                         .eps = pointers.eps};
  ForRows(x.size(0), x.size(1) * x.size(2),
          [&](int64_t begin, int64_t end) { PrepareHeadsBackwardRows(task, begin, end); });
}

}  // namespace

bool HasCpuHeads(const at::Tensor& x) { return HasCpuRows(x) && x.stride(1) == x.size(2); }

QkHeads PrepareQk(const QkHeads& heads, const QkPreparation& preparation) {
  if (IsIdentity(preparation)) return heads;
  if (!HasCpuHeads(heads.q) || !HasCpuHeads(heads.k)) return PrepareQkByTorch(heads, preparation);
  const PreparationPointers pointers = PointersOf(preparation);
  return {PrepareByKernel(heads.q, pointers.q_weight, pointers),
          PrepareByKernel(heads.k, pointers.k_weight, pointers)};
}

QkHeads PrepareQkByTorch(const QkHeads& heads, const QkPreparation& preparation) {
  QkHeads y = heads;
  if (preparation.q_norm.defined()) {
    y = {RmsNormByTorch(y.q, preparation.q_norm, preparation.eps),
         RmsNormByTorch(y.k, preparation.k_norm, preparation.eps)};
  }
  if (preparation.rope == nullptr) return y;
  const auto [cos, sin] = preparation.rope->At(preparation.positions);
  return {ApplyRope(y.q, cos, sin), ApplyRope(y.k, cos, sin)};
}

void PrepareQkBackward(const QkHeads& heads, const QkPreparation& preparation, const QkHeads& d) {
  if (!HasCpuHeads(heads.q) || !HasCpuHeads(heads.k) || !d.q.is_contiguous() ||
      !d.k.is_contiguous()) {
    return PrepareQkBackwardByTorch(heads, preparation, d);
  }
  const PreparationPointers pointers = PointersOf(preparation);
  PrepareBackwardByKernel(heads.q, pointers.q_weight, pointers, d.q);
  PrepareBackwardByKernel(heads.k, pointers.k_weight, pointers, d.k);
}

void PrepareQkBackwardByTorch(const QkHeads& heads, const QkPreparation& preparation,
                              const QkHeads& d) {
  QkHeads dx = d;
  if (preparation.rope != nullptr) {
    const auto [cos, sin] = preparation.rope->At(preparation.positions);
    dx = {ApplyRopeBackward(dx.q, cos, sin), ApplyRopeBackward(dx.k, cos, sin)};
  }
  if (preparation.q_norm.defined()) {
    dx = {RmsNormBackwardByTorch(heads.q, preparation.q_norm, preparation.eps, dx.q),
          RmsNormBackwardByTorch(heads.k, preparation.k_norm, preparation.eps, dx.k)};
  }
  heads.q.copy_(dx.q);
  heads.k.copy_(dx.k);
}

}  // namespace lathe::worker
