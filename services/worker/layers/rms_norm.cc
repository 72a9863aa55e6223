#include "services/worker/layers/rms_norm.h"

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

}  // namespace lathe::worker
