// The row-wise steps of a layer on a GPU: norms, rope and activations. Free of torch and of CUDA's
// headers. All pointers are device pointers. Sums are fp32 in a fixed order, and a row's bits do
// not depend on other rows.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cuda/stream.h"
#include "services/worker/spec/activation.h"

namespace lathe::worker {

// Rows of numbers in fp32 or bf16. The numbers of a row are contiguous; `stride` counts numbers.
struct DeviceRows {
  void* data = nullptr;
  int64_t stride = 0;
  bool is_bf16 = false;
};

// y = x / sqrt(mean(x^2) + eps) * weight, plus `residual` if given.
struct RmsNormDeviceTask {
  DeviceRows x;                   // fp32
  const float* weight = nullptr;  // [width]
  DeviceRows residual;            // fp32; data may be null
  DeviceRows y;                   // fp32 or bf16
  int64_t num_rows = 0;
  int64_t width = 0;
  float eps = 0;
};
void RmsNormOnDevice(const RmsNormDeviceTask& task, DeviceStream stream);

// dL/dx of RmsNormOnDevice, plus `residual` if given. All rows are fp32; dx may be dy.
struct RmsNormBackwardDeviceTask {
  DeviceRows x;
  const float* weight = nullptr;
  DeviceRows dy;
  DeviceRows residual;  // data may be null
  DeviceRows dx;
  int64_t num_rows = 0;
  int64_t width = 0;
  float eps = 0;
};
void RmsNormBackwardOnDevice(const RmsNormBackwardDeviceTask& task, DeviceStream stream);

// y = activation(gate) * up; all of one dtype.
struct GatedActivationDeviceTask {
  Activation activation = Activation::kSilu;
  DeviceRows gate;
  DeviceRows up;
  DeviceRows y;
  int64_t num_rows = 0;
  int64_t width = 0;
};
void GatedActivationOnDevice(const GatedActivationDeviceTask& task, DeviceStream stream);

// dL/dgate and dL/dup, written over gate and up. `dy` is in y's place; all of one dtype.
void GatedActivationBackwardOnDevice(const GatedActivationDeviceTask& task, DeviceStream stream);

// Applies the norm above to each head, then rotates its element i with element i + head_dim / 2 by
// the angle of the row's position. Either step may be left out.
struct PrepareHeadsDeviceTask {
  DeviceRows x;                        // [num_rows, num_heads * head_dim]
  const float* weight = nullptr;       // [head_dim]; null: no norm
  const float* cos = nullptr;          // [num_positions, head_dim / 2]; null: no rotation
  const float* sin = nullptr;          // same
  const int64_t* positions = nullptr;  // [num_rows]; unused without rotation
  DeviceRows y;                        // of x's dtype
  int64_t num_rows = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  float eps = 0;
};
void PrepareHeadsOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream stream);

// dL/dx, written over x. `dy` is in y's place.
void PrepareHeadsBackwardOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream stream);

// Returns true if the kernels of heads are compiled for this size.
constexpr bool HasPrepareHeads(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

}  // namespace lathe::worker
