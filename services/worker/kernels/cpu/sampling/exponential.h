// Exponentially distributed numbers from random bits, the same on every device. For kernels only.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

// Returns a uniform number in (0, 1).
LATHE_INLINE float UniformOf(uint32_t bits) {
  return (static_cast<float>(bits >> 1) + 0.5f) * 0x1p-31f;
}

// Returns -log(1 - u) for that uniform number u. Small results decide a sample, so they keep their
// relative precision: log(w) · u / (1 - w) undoes the rounding of w = 1 - u.
LATHE_INLINE float ExponentialOf(uint32_t bits) {
  const float u = UniformOf(bits);
  const float w = 1.0f - u < 0x1p-24f ? 0x1p-24f : 1.0f - u;
  const float rounded = 1.0f - w;
  return rounded == 0.0f ? u : -FastLog(w) * (u / (rounded == 0.0f ? 1.0f : rounded));
}

}  // namespace lathe::worker
