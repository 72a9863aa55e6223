#include "services/worker/layers/mlp.h"

namespace lathe::worker {

at::Tensor SiluMul(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

void SiluMulBackward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy,
                     at::Tensor dgate, at::Tensor dup) {
  at::mul_out(dup, dy, at::silu(gate));
  dgate.copy_(at::silu_backward(at::mul(dy, up), gate));
}

}  // namespace lathe::worker
