// Elementary functions that the compiler can vectorize in loops. Hot file: no branches, no calls.
// Only for files compiled with the kernels' flags.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// One copy of a function per instruction set, selected by the CPU's features at program load. Tests
// compile a kernel's file again for one instruction set (lora_kernel_avx2.cc).
#ifndef LATHE_SIMD_CLONES
#define LATHE_SIMD_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#ifdef __CUDACC__  // for kernels on a GPU too
#define LATHE_INLINE __host__ __device__ __forceinline__
#else
#define LATHE_INLINE __attribute__((always_inline)) inline
#endif
#define LATHE_INLINE_LAMBDA __attribute__((always_inline))

namespace lathe::worker {

// Returns exp(x) for x <= 0, to 2 ulp; 0 below -87. NaN stays NaN. (Cephes expf: 2^n times a
// polynomial of degree 5 on [-ln2/2, ln2/2].)
LATHE_INLINE float FastExp(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const float n = std::nearbyint(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return x < -87.0f ? 0.0f : p * power;
}

// Returns log(x) for normal x > 0, to 2 ulp. (Cephes logf.)
LATHE_INLINE float FastLog(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  // Split so that the mantissa is in [sqrt(1/2), sqrt(2)).
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const int32_t mantissa_bits = bits - (exponent << 23);
  float mantissa;
  std::memcpy(&mantissa, &mantissa_bits, sizeof(mantissa));
  const float n = static_cast<float>(exponent);
  const float r = mantissa - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  const float square = r * r;
  const float tail = p * r * square - 2.12194440e-4f * n - 0.5f * square;
  return r + tail + n * 0.693359375f;
}

// Returns the largest of n > 0 numbers. Uses lanes, because a plain loop over floats stays scalar.
// May skip a NaN; results computed with the maximum then show it.
LATHE_INLINE float MaxOfRange(const float* x, int64_t n) {
  constexpr int kLanes = 32;
  float max = x[0];
  int64_t i = 0;
  if (n >= kLanes) {
    float lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = x[lane];
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) max = lanes[lane] > max ? lanes[lane] : max;
  }
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

}  // namespace lathe::worker
