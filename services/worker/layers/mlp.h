// The gated activation of an MLP: activation(gate) * up.
#pragma once

#include "services/worker/spec/activation.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// gate, up [T, I]; returns [T, I].
at::Tensor GatedActivation(Activation activation, const at::Tensor& gate, const at::Tensor& up);

// GatedActivation by torch operations, on any device.
at::Tensor GatedActivationByTorch(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up);

// Writes dL/dgate and dL/dup [T, I] over gate and up, which may be column slices. `dy` is
// dL/d(activation(gate) * up) [T, I].
void GatedActivationBackward(Activation activation, at::Tensor gate, at::Tensor up,
                             const at::Tensor& dy);

// GatedActivationBackward by torch operations, on any device.
void GatedActivationBackwardByTorch(Activation activation, at::Tensor gate, at::Tensor up,
                                    const at::Tensor& dy);

}  // namespace lathe::worker
