// Vectors and sizes of the attention kernels, the same for every arithmetic. Hot file, free of
// torch: everything here is inlined into functions with their own target.
//
// A tile has up to kTileRows query rows. Keys come in blocks of kKeyBlock, whose borders are
// absolute positions of the sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "services/worker/kernels/cpu/attention/attention_backward_kernel.h"
#include "services/worker/kernels/cpu/attention/attention_kernel.h"
#include "services/worker/kernels/cpu/attention/kv_block.h"
#include "services/worker/kernels/cpu/vectors.h"

namespace lathe::worker::attention {

constexpr int64_t kKeyBlock = kAttentionKeyBlock;
constexpr int64_t kKeyVectors = kKeyBlock / kLanes;
constexpr int kTileRows = 6;

// Query rows per chunk of the backward pass: long chains for dk and dv, and all data in the cache.
constexpr int64_t kBackwardChunkRows = 96;

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

static_assert(kKvBlockTokens == kLanes);

using Lanes = Floats;
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));

constexpr Words kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

constexpr int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Loads the first `size` numbers, any number; the rest is zero.
template <typename V = Lanes>
LATHE_INLINE V LoadUpTo(const float* x, int64_t size) {
  if (size >= static_cast<int64_t>(sizeof(V) / sizeof(float))) return Load<V>(x);
  V vector = {};
  if (size > 0) std::memcpy(&vector, x, static_cast<size_t>(size) * sizeof(float));
  return vector;
}

// Transposes a square of vectors in place: rounds that swap blocks off the diagonal. Vectors have
// the width of the instruction set, because GCC shuffles wider ones number by number.
template <typename V, int kWidth>
LATHE_INLINE void TransposeSquare(V (&rows)[kWidth]) {
  typedef int32_t Indices __attribute__((vector_size(sizeof(V))));
  Indices index;
  std::memcpy(&index, &kLaneIndex, sizeof(index));
#pragma GCC unroll 4
  for (int step = 1; step < kWidth; step *= 2) {
    const Indices is_high = (index & step) != 0;
    const Indices low = (is_high & (index - step + kWidth)) | (~is_high & index);
    const Indices high = (is_high & (index + kWidth)) | (~is_high & (index + step));
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      if (i & step) continue;
      const V a = rows[i];
      const V b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

// Returns 2^x for x <= 0 to 2 ulp; 0 below -125. NaN stays NaN. (Cephes exp2f: a polynomial of
// degree 6 on [-1/2, 1/2].)
LATHE_INLINE Lanes Exp2(const Lanes& x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer
  const Lanes shifted = x + kRound;
  const Lanes r = x - (shifted - kRound);
  Lanes p = r * 1.5353362e-4f + 1.3398874e-3f;
  p = p * r + 9.6184374e-3f;
  p = p * r + 5.5503325e-2f;
  p = p * r + 2.4022648e-1f;
  p = p * r + 6.9314720e-1f;
  p = p * r + 1.0f;
  const Words power = ((Words)shifted << 23) + 0x3f800000;
  const Words is_small = x < -125.0f;
  return (Lanes)((Words)(p * (Lanes)power) & ~is_small);
}

LATHE_INLINE Lanes Max(const Lanes& a, const Lanes& b) { return a > b ? a : b; }

// Returns the largest lane, in all lanes.
LATHE_INLINE Lanes MaxOfLanes(Lanes x) {
  x = Max(x, __builtin_shuffle(x, kLaneIndex ^ 8));
  x = Max(x, __builtin_shuffle(x, kLaneIndex ^ 4));
  x = Max(x, __builtin_shuffle(x, kLaneIndex ^ 2));
  return Max(x, __builtin_shuffle(x, kLaneIndex ^ 1));
}

// y = x * factor.
LATHE_INLINE void CopyScaled(const float* x, float factor, int64_t size, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
}

// Scratch memory that is handed out in pieces.
struct Scratch {
  float* rest;

  template <typename T = float>
  LATHE_INLINE T* Take(int64_t size) {
    T* piece = reinterpret_cast<T*>(rest);
    rest += RoundUp(size, kLanes);
    return piece;
  }
};

}  // namespace lathe::worker::attention
