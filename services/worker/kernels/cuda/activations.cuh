// Activations of gated MLPs, for the kernels that compute them. One text serves all of them, so
// that an activation has the same bits in a launch of its own and at the end of another.
#pragma once

#include <cuda_runtime.h>

#include "services/worker/spec/activation.h"

namespace lathe::worker {

constexpr float kGeluLinear = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

inline __device__ float Activated(Activation activation, float x) {
  if (activation == Activation::kSilu) return x / (1 + expf(-x));
  return 0.5f * x * (1 + tanhf(kGeluLinear * (x + kGeluCubic * x * x * x)));
}

// Derivative of Activated.
inline __device__ float Slope(Activation activation, float x) {
  if (activation == Activation::kSilu) {
    const float sigmoid = 1 / (1 + expf(-x));
    return sigmoid * (1 + x * (1 - sigmoid));
  }
  const float tanh = tanhf(kGeluLinear * (x + kGeluCubic * x * x * x));
  return 0.5f * (1 + tanh) +
         0.5f * x * (1 - tanh * tanh) * kGeluLinear * (1 + 3 * kGeluCubic * x * x);
}

}  // namespace lathe::worker
