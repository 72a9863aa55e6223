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

void SiluMulBackward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy,
                     at::Tensor dgate, at::Tensor dup) {
  at::mul_out(dup, dy, at::silu(gate));
  dgate.copy_(at::silu_backward(at::mul(dy, up), gate));
}

}  // namespace lathe::worker
