#include "services/worker/layers/qk_norm.h"

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/rms_norm.h"

namespace lathe::worker {
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
