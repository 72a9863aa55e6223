// Vectors of 16 floats and operations on them for hot loops. Their sums have a defined order,
// however the compiler translates a loop. Only for files compiled with the kernels' flags.
#pragma once

#include <cstdint>
#include <cstring>

#include "services/worker/kernels/cpu/vector_math.h"

// All functions that take vectors are inlined, so the ABI warning does not apply.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace lathe::worker {

inline constexpr int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(4 * kLanes)));

template <typename Vector = Floats, typename Number>
LATHE_INLINE Vector Load(const Number* x) {
  Vector v;
  std::memcpy(&v, x, sizeof(v));
  return v;
}

template <typename Vector, typename Number>
LATHE_INLINE void Store(Number* x, const Vector& v) {
  std::memcpy(x, &v, sizeof(v));
}

// Copies `size` <= 16 numbers in at most four pieces.
LATHE_INLINE void CopyPart(const float* from, float* to, int64_t size) {
  if (size == kLanes) {
    std::memcpy(to, from, kLanes * sizeof(float));
    return;
  }
  if (size & 8) std::memcpy(to, from, 8 * sizeof(float));
  if (size & 4) std::memcpy(to + (size & 8), from + (size & 8), 4 * sizeof(float));
  if (size & 2) std::memcpy(to + (size & 12), from + (size & 12), 2 * sizeof(float));
  if (size & 1) to[size & 14] = from[size & 14];
}

// Loads the first `size` <= 16 numbers; the rest is zero.
LATHE_INLINE Floats LoadPart(const float* x, int64_t size) {
  alignas(64) float part[kLanes] = {};
  CopyPart(x, part, size);
  return Load(part);
}

LATHE_INLINE void StorePart(float* x, const Floats& v, int64_t size) {
  alignas(64) float part[kLanes];
  Store(part, v);
  CopyPart(part, x, size);
}

// Transposes 16 vectors of 16 four-byte numbers in place: four rounds that swap blocks off the
// diagonal.
template <typename Vector>
LATHE_INLINE void Transpose(Vector (&rows)[kLanes]) {
  typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
  const auto swap = [&](int step, const Words& low, const Words& high) LATHE_INLINE_LAMBDA {
    for (int i = 0; i < kLanes; ++i) {
      if (i & step) continue;
      const Vector a = rows[i];
      const Vector b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  };
  swap(1, Words{0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30},
       Words{1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31});
  swap(2, Words{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
       Words{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
  swap(4, Words{0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27},
       Words{4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31});
  swap(8, Words{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
       Words{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
}

// Returns the sum of the lanes: adds halves until one number is left.
LATHE_INLINE float SumOfLanes(const Floats& v) {
  alignas(64) float lanes[kLanes];
  Store(lanes, v);
  for (int64_t step = kLanes / 2; step > 0; step /= 2) {
    for (int64_t i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

// Returns the sum of n numbers in blocks of 16: four interleaved vectors of sums, then one tree.
// term(sum, load) adds a block, where load(x) returns x[i, i + 16), zero past the end.
template <typename F>
LATHE_INLINE float SumOfBlocks(int64_t n, const F& term) {
  constexpr int kChains = 4;
  Floats sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) {
      const int64_t at = i + c * kLanes;
      term(sums[c], [at](const float* x) LATHE_INLINE_LAMBDA { return Load(x + at); });
    }
  }
  for (int c = 0; i < n; i += kLanes, ++c) {
    const int64_t size = n - i < kLanes ? n - i : kLanes;
    term(sums[c], [i, size](const float* x) LATHE_INLINE_LAMBDA { return LoadPart(x + i, size); });
  }
  return SumOfLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Returns the dot product of n numbers.
LATHE_INLINE float Dot(const float* x, const float* y, int64_t n) {
  return SumOfBlocks(
      n, [x, y](Floats& sum, const auto& load) LATHE_INLINE_LAMBDA { sum += load(x) * load(y); });
}

}  // namespace lathe::worker
