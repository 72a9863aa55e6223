// Tensors of a GPU as rows for our kernels.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cuda/row_kernels.h"
#include "services/worker/layers/device_stream.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/gpu.h"

namespace lathe::worker {

// Returns true if the GPU kernels can read x [T, ...]: fp32 or bf16, the numbers of a row
// contiguous.
inline bool HasDeviceRows(const at::Tensor& x) {
  if (!IsGpu(x.device()) || x.stride(-1) != 1) return false;
  if (x.dim() == 3 && x.stride(1) != x.size(2)) return false;
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

// Callers write through the result only if `x` is an output.
inline DeviceRows DeviceRowsOf(const at::Tensor& x) {
  return {.data = x.data_ptr(), .stride = x.stride(0), .is_bf16 = x.scalar_type() == at::kBFloat16};
}

}  // namespace lathe::worker
