// The gated activation of an MLP: silu(gate) * up.
#pragma once

#include "services/worker/torch/aten.h"

namespace lathe::worker {

// gate, up [T, I]; returns [T, I].
at::Tensor SiluMul(const at::Tensor& gate, const at::Tensor& up);

// SiluMul by torch operations, on any device.
at::Tensor SiluMulByTorch(const at::Tensor& gate, const at::Tensor& up);

// Writes dL/dgate and dL/dup [T, I] over gate and up, which may be column slices. `dy` is
// dL/d(silu(gate) * up) [T, I].
void SiluMulBackward(at::Tensor gate, at::Tensor up, const at::Tensor& dy);

// SiluMulBackward by torch operations, on any device.
void SiluMulBackwardByTorch(at::Tensor gate, at::Tensor up, const at::Tensor& dy);

}  // namespace lathe::worker
