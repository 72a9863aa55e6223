// The gated activation of an MLP: silu(gate) * up.
#pragma once

#include <ATen/ATen.h>

namespace lathe::worker {

// gate, up [T, I]; returns [T, I].
at::Tensor SiluMul(const at::Tensor& gate, const at::Tensor& up);

// The same by torch operations, on any device.
at::Tensor SiluMulByTorch(const at::Tensor& gate, const at::Tensor& up);

// Writes dL/dgate and dL/dup [T, I] (column slices are fine) from dL/d(silu(gate) * up).
void SiluMulBackward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy,
                     at::Tensor dgate, at::Tensor dup);

}  // namespace lathe::worker
