#include "services/worker/layers/mlp.h"

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {

at::Tensor SiluMul(const at::Tensor& gate, const at::Tensor& up) {
  if (!HasCpuRows(gate) || !HasCpuRows(up)) return SiluMulByTorch(gate, up);
  at::Tensor y = at::empty(gate.sizes(), gate.options());
  const SiluMulTask task = {.gate = gate.const_data_ptr<float>(),
                            .up = up.const_data_ptr<float>(),
                            .gate_stride = gate.stride(0),
                            .up_stride = up.stride(0),
                            .y = y.mutable_data_ptr<float>(),
                            .width = gate.size(1)};
  ForRows(gate.size(0), gate.size(1),
          [&](int64_t begin, int64_t end) { SiluMulRows(task, begin, end); });
  return y;
}

at::Tensor SiluMulByTorch(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate).mul_(up);
}

void SiluMulBackward(at::Tensor gate, at::Tensor up, const at::Tensor& dy) {
  if (!HasCpuRows(gate) || !HasCpuRows(up) || !HasCpuRows(dy)) {
    return SiluMulBackwardByTorch(gate, up, dy);
  }
  const SiluMulBackwardTask task = {.gate = gate.mutable_data_ptr<float>(),
                                    .up = up.mutable_data_ptr<float>(),
                                    .gate_stride = gate.stride(0),
                                    .up_stride = up.stride(0),
                                    .dy = dy.const_data_ptr<float>(),
                                    .dy_stride = dy.stride(0),
                                    .width = gate.size(1)};
  ForRows(gate.size(0), gate.size(1),
          [&](int64_t begin, int64_t end) { SiluMulBackwardRows(task, begin, end); });
}

void SiluMulBackwardByTorch(at::Tensor gate, at::Tensor up, const at::Tensor& dy) {
  const at::Tensor dup = at::mul(dy, at::silu(gate));
  gate.copy_(at::silu_backward(at::mul(dy, up), gate));
  up.copy_(dup);
}

}  // namespace lathe::worker
