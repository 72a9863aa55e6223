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

at::Tensor NormRopeByKernel(const at::Tensor& x, const at::Tensor& weight, double eps,
                            const RopeTable& rope, const at::Tensor& positions) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const NormRopeTask task = {.x = x.const_data_ptr<float>(),
                             .x_stride = x.stride(0),
                             .weight = weight.const_data_ptr<float>(),
                             .cos = rope.cos().const_data_ptr<float>(),
                             .sin = rope.sin().const_data_ptr<float>(),
                             .positions = positions.const_data_ptr<int64_t>(),
                             .y = y.mutable_data_ptr<float>(),
                             .num_heads = x.size(1),
                             .head_dim = x.size(2),
                             .eps = static_cast<float>(eps)};
  ForRows(x.size(0), x.size(1) * x.size(2),
          [&](int64_t begin, int64_t end) { NormRopeRows(task, begin, end); });
  return y;
}

void BackwardByKernel(const at::Tensor& x, const at::Tensor& weight, double eps,
                      const RopeTable& rope, const at::Tensor& positions, const at::Tensor& dy) {
  const NormRopeBackwardTask task = {.x = x.const_data_ptr<float>(),
                                     .x_stride = x.stride(0),
                                     .weight = weight.const_data_ptr<float>(),
                                     .cos = rope.cos().const_data_ptr<float>(),
                                     .sin = rope.sin().const_data_ptr<float>(),
                                     .positions = positions.const_data_ptr<int64_t>(),
                                     .dy = dy.mutable_data_ptr<float>(),
                                     .dx = x.mutable_data_ptr<float>(),
                                     .dx_stride = x.stride(0),
                                     .num_heads = x.size(1),
                                     .head_dim = x.size(2),
                                     .eps = static_cast<float>(eps)};
  ForRows(x.size(0), x.size(1) * x.size(2),
          [&](int64_t begin, int64_t end) { NormRopeBackwardRows(task, begin, end); });
}

}  // namespace

bool HasCpuHeads(const at::Tensor& x) { return HasCpuRows(x) && x.stride(1) == x.size(2); }

QkHeads NormRope(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                 const at::Tensor& positions) {
  if (!HasCpuHeads(heads.q) || !HasCpuHeads(heads.k)) {
    return NormRopeByTorch(heads, weights, rope, positions);
  }
  return {NormRopeByKernel(heads.q, weights.q_weight, weights.eps, rope, positions),
          NormRopeByKernel(heads.k, weights.k_weight, weights.eps, rope, positions)};
}

QkHeads NormRopeByTorch(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                        const at::Tensor& positions) {
  const auto [cos, sin] = rope.At(positions);
  return {ApplyRope(RmsNormByTorch(heads.q, weights.q_weight, weights.eps), cos, sin),
          ApplyRope(RmsNormByTorch(heads.k, weights.k_weight, weights.eps), cos, sin)};
}

void NormRopeBackward(const QkHeads& heads, const QkNormWeights& weights, const RopeTable& rope,
                      const at::Tensor& positions, const QkHeads& d) {
  if (!HasCpuHeads(heads.q) || !HasCpuHeads(heads.k) || !d.q.is_contiguous() ||
      !d.k.is_contiguous()) {
    return NormRopeBackwardByTorch(heads, weights, rope, positions, d);
  }
  BackwardByKernel(heads.q, weights.q_weight, weights.eps, rope, positions, d.q);
  BackwardByKernel(heads.k, weights.k_weight, weights.eps, rope, positions, d.k);
}

void NormRopeBackwardByTorch(const QkHeads& heads, const QkNormWeights& weights,
                             const RopeTable& rope, const at::Tensor& positions, const QkHeads& d) {
  const auto [cos, sin] = rope.At(positions);
  heads.q.copy_(RmsNormBackwardByTorch(heads.q, weights.q_weight, weights.eps,
                                       ApplyRopeBackward(d.q, cos, sin)));
  heads.k.copy_(RmsNormBackwardByTorch(heads.k, weights.k_weight, weights.eps,
                                       ApplyRopeBackward(d.k, cos, sin)));
}

}  // namespace lathe::worker
