#include "services/worker/layers/mlp.h"

#include "services/worker/kernels/cpu/row_kernels.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/layers/device_rows.h"

namespace lathe::worker {
namespace {

bool AreDeviceRows(const at::Tensor& gate, const at::Tensor& up) {
  return HasDeviceRows(gate) && HasDeviceRows(up) && gate.scalar_type() == up.scalar_type();
}

GatedActivationDeviceTask DeviceTaskOf(Activation activation, const at::Tensor& gate,
                                       const at::Tensor& up, const at::Tensor& y) {
  return {.activation = activation,
          .gate = DeviceRowsOf(gate),
          .up = DeviceRowsOf(up),
          .y = DeviceRowsOf(y),
          .num_rows = gate.size(0),
          .width = gate.size(1)};
}

}  // namespace

at::Tensor GatedActivation(Activation activation, const at::Tensor& gate, const at::Tensor& up) {
  if (AreDeviceRows(gate, up)) {
    at::Tensor y = at::empty(gate.sizes(), gate.options());
    GatedActivationOnDevice(DeviceTaskOf(activation, gate, up, y), CurrentStream(gate.device()));
    return y;
  }
  if (!HasCpuRows(gate) || !HasCpuRows(up)) return GatedActivationByTorch(activation, gate, up);
  at::Tensor y = at::empty(gate.sizes(), gate.options());
  const GatedActivationTask task = {.activation = activation,
                                    .gate = gate.const_data_ptr<float>(),
                                    .up = up.const_data_ptr<float>(),
                                    .gate_stride = gate.stride(0),
                                    .up_stride = up.stride(0),
                                    .y = y.mutable_data_ptr<float>(),
                                    .width = gate.size(1)};
  ForRows(gate.size(0), gate.size(1),
          [&](int64_t begin, int64_t end) { GatedActivationRows(task, begin, end); });
  return y;
}

at::Tensor GatedActivationByTorch(Activation activation, const at::Tensor& gate,
                                  const at::Tensor& up) {
  return (activation == Activation::kSilu ? at::silu(gate) : at::gelu(gate, "tanh")).mul_(up);
}

void GatedActivationBackward(Activation activation, at::Tensor gate, at::Tensor up,
                             const at::Tensor& dy) {
  if (AreDeviceRows(gate, up) && AreDeviceRows(gate, dy)) {
    GatedActivationBackwardOnDevice(DeviceTaskOf(activation, gate, up, dy),
                                    CurrentStream(gate.device()));
    return;
  }
  if (!HasCpuRows(gate) || !HasCpuRows(up) || !HasCpuRows(dy)) {
    return GatedActivationBackwardByTorch(activation, gate, up, dy);
  }
  const GatedActivationBackwardTask task = {.activation = activation,
                                            .gate = gate.mutable_data_ptr<float>(),
                                            .up = up.mutable_data_ptr<float>(),
                                            .gate_stride = gate.stride(0),
                                            .up_stride = up.stride(0),
                                            .dy = dy.const_data_ptr<float>(),
                                            .dy_stride = dy.stride(0),
                                            .width = gate.size(1)};
  ForRows(gate.size(0), gate.size(1),
          [&](int64_t begin, int64_t end) { GatedActivationBackwardRows(task, begin, end); });
}

void GatedActivationBackwardByTorch(Activation activation, at::Tensor gate, at::Tensor up,
                                    const at::Tensor& dy) {
  const at::Tensor dup = GatedActivationByTorch(activation, gate, dy);
  const at::Tensor dactivated = at::mul(dy, up);
  gate.copy_(activation == Activation::kSilu ? at::silu_backward(dactivated, gate)
                                             : at::gelu_backward(dactivated, gate, "tanh"));
  up.copy_(dup);
}

}  // namespace lathe::worker
