#include "services/worker/layers/norms.h"

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/device_rows.h"

namespace lathe::worker {

namespace {

// 1 / sqrt(mean(x^2) + eps), [..., 1].
at::Tensor InverseRms(const at::Tensor& x, double eps) {
  return at::square(x).mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

bool HasCpuMatrix(const at::Tensor& x) { return x.dim() == 2 && HasCpuRows(x); }

bool HasDeviceMatrix(const at::Tensor& x) {
  return x.dim() == 2 && x.scalar_type() == at::kFloat && HasDeviceRows(x);
}

DeviceRows DeviceRowsOrNone(const at::Tensor& x) {
  return x.defined() ? DeviceRowsOf(x) : DeviceRows{};
}

// Returns the norm, plus `residual` if defined.
at::Tensor NormOnDevice(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                        double eps, at::ScalarType dtype) {
  at::Tensor y = at::empty(x.sizes(), x.options().dtype(dtype));
  RmsNormOnDevice({.x = DeviceRowsOf(x),
                   .weight = weight.const_data_ptr<float>(),
                   .residual = DeviceRowsOrNone(residual),
                   .y = DeviceRowsOf(y),
                   .num_rows = x.size(0),
                   .width = x.size(1),
                   .eps = static_cast<float>(eps)},
                  CurrentStream(x.device()));
  return y;
}

// Writes dx, plus `residual` if defined. dx may alias dy.
void BackwardOnDevice(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                      double eps, const at::Tensor& dy, const at::Tensor& dx) {
  RmsNormBackwardOnDevice({.x = DeviceRowsOf(x),
                           .weight = weight.const_data_ptr<float>(),
                           .dy = DeviceRowsOf(dy),
                           .residual = DeviceRowsOrNone(residual),
                           .dx = DeviceRowsOf(dx),
                           .num_rows = x.size(0),
                           .width = x.size(1),
                           .eps = static_cast<float>(eps)},
                          CurrentStream(x.device()));
}

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

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps,
                   std::optional<at::ScalarType> dtype) {
  const at::ScalarType result_dtype = dtype.value_or(x.scalar_type());
  if (HasDeviceMatrix(x)) return NormOnDevice(/*residual=*/{}, x, weight, eps, result_dtype);
  if (!HasCpuMatrix(x) || result_dtype != at::kFloat) {
    return RmsNormByTorch(x, weight, eps).to(result_dtype);
  }
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

at::Tensor RmsNormOnto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       double eps) {
  if (HasDeviceMatrix(x) && HasDeviceMatrix(residual)) {
    return NormOnDevice(residual, x, weight, eps, at::kFloat);
  }
  return RmsNorm(x, weight, eps).add_(residual);
}

at::Tensor RmsNormByTorch(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return at::mul(x, InverseRms(x, eps)).mul_(weight);
}

at::Tensor RmsNormBackward(const at::Tensor& x, const at::Tensor& weight, double eps,
                           const at::Tensor& dy) {
  if (HasDeviceMatrix(x) && HasDeviceMatrix(dy)) {
    at::Tensor dx = at::empty(x.sizes(), x.options());
    BackwardOnDevice(/*residual=*/{}, x, weight, eps, dy, dx);
    return dx;
  }
  if (!HasCpuMatrix(x) || !HasCpuRows(dy)) return RmsNormBackwardByTorch(x, weight, eps, dy);
  at::Tensor dx = at::empty(x.sizes(), x.options());
  BackwardByKernel(/*residual=*/{}, x, weight, eps, dy, dx);
  return dx;
}

at::Tensor RmsNormBackwardOnto(const at::Tensor& residual, const at::Tensor& x,
                               const at::Tensor& weight, double eps, at::Tensor dy) {
  if (HasDeviceMatrix(x) && HasDeviceMatrix(dy) && HasDeviceMatrix(residual)) {
    BackwardOnDevice(residual, x, weight, eps, dy, dy);
    return dy;
  }
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

PrepareHeadsDeviceTask DeviceTaskOf(const at::Tensor& x, const float* weight,
                                    const PreparationPointers& pointers, const at::Tensor& y) {
  return {.x = DeviceRowsOf(x),
          .weight = weight,
          .cos = pointers.cos,
          .sin = pointers.sin,
          .positions = pointers.positions,
          .y = DeviceRowsOf(y),
          .num_rows = x.size(0),
          .num_heads = x.size(1),
          .head_dim = x.size(2),
          .eps = pointers.eps};
}

at::Tensor PrepareOnDevice(const at::Tensor& x, const float* weight,
                           const PreparationPointers& pointers) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  PrepareHeadsOnDevice(DeviceTaskOf(x, weight, pointers, y), CurrentStream(x.device()));
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

namespace {

bool HasDeviceHeads(const at::Tensor& x) { return HasPrepareHeads(x.size(2)) && HasDeviceRows(x); }

}  // namespace

bool HasCpuHeads(const at::Tensor& x) { return HasCpuRows(x) && x.stride(1) == x.size(2); }

QkHeads PrepareQk(const QkHeads& heads, const QkPreparation& preparation) {
  if (IsIdentity(preparation)) return heads;
  const bool is_on_device = HasDeviceHeads(heads.q) && HasDeviceHeads(heads.k);
  if (!is_on_device && (!HasCpuHeads(heads.q) || !HasCpuHeads(heads.k))) {
    return PrepareQkByTorch(heads, preparation);
  }
  const PreparationPointers pointers = PointersOf(preparation);
  if (is_on_device) {
    return {PrepareOnDevice(heads.q, pointers.q_weight, pointers),
            PrepareOnDevice(heads.k, pointers.k_weight, pointers)};
  }
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
  const bool is_contiguous = d.q.is_contiguous() && d.k.is_contiguous();
  const bool is_on_device = is_contiguous && HasDeviceHeads(heads.q) && HasDeviceHeads(heads.k) &&
                            d.q.scalar_type() == heads.q.scalar_type() &&
                            d.k.scalar_type() == heads.k.scalar_type();
  const bool is_on_cpu = is_contiguous && HasCpuHeads(heads.q) && HasCpuHeads(heads.k);
  if (!is_on_device && !is_on_cpu) return PrepareQkBackwardByTorch(heads, preparation, d);
  const PreparationPointers pointers = PointersOf(preparation);
  if (is_on_device) {
    const DeviceStream stream = CurrentStream(heads.q.device());
    PrepareHeadsBackwardOnDevice(DeviceTaskOf(heads.q, pointers.q_weight, pointers, d.q), stream);
    PrepareHeadsBackwardOnDevice(DeviceTaskOf(heads.k, pointers.k_weight, pointers, d.k), stream);
    return;
  }
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
