// Numbers of the dtypes in which kernels read and write rows. Sums are fp32.
#pragma once

#include <cuda_bf16.h>

namespace lathe::worker {

inline __device__ float ToFloat(float x) { return x; }
inline __device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

// Writes x, rounded to the dtype of `to`.
inline __device__ void Write(float x, float* to) { *to = x; }
inline __device__ void Write(float x, __nv_bfloat16* to) { *to = __float2bfloat16(x); }

// Returns x as memory of T keeps it.
template <typename T>
__device__ float Rounded(float x) {
  T rounded;
  Write(x, &rounded);
  return ToFloat(rounded);
}

// Neighbouring numbers that a thread reads or writes at once. Their address must be a multiple of
// their size.
template <typename T, int kSize>
struct alignas(sizeof(T) * kSize) Numbers {
  T at[kSize];
};

// Reads numbers as fp32.
template <int kSize, typename T>
__device__ void Load(const T* from, float (&x)[kSize]) {
  const auto numbers = *reinterpret_cast<const Numbers<T, kSize>*>(from);
#pragma unroll
  for (int i = 0; i < kSize; ++i) x[i] = ToFloat(numbers.at[i]);
}

// Writes fp32 numbers, rounded to T.
template <int kSize, typename T>
__device__ void Store(const float (&x)[kSize], T* to) {
  Numbers<T, kSize> numbers;
#pragma unroll
  for (int i = 0; i < kSize; ++i) Write(x[i], &numbers.at[i]);
  *reinterpret_cast<Numbers<T, kSize>*>(to) = numbers;
}

}  // namespace lathe::worker
