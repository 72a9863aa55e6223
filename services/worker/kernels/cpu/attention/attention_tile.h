// Building blocks of the attention kernels: products of small tiles, kept in registers. Hot file,
// free of torch: everything here is inlined into functions with their own target.
//
// A tile has up to kTileRows query rows. Keys come in blocks of kKeyBlock, whose borders are
// absolute positions of the sequence. Every number is one chain of multiply-adds in the order of
// the inner index, so its bits do not depend on the tile's shape.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker::attention {

constexpr int64_t kLanes = 16;
constexpr int64_t kKeyBlock = 64;
constexpr int64_t kKeyVectors = kKeyBlock / kLanes;
constexpr int kTileRows = 6;

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));

constexpr Words kLaneIndex = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Register use: vectors of kWidth numbers, and kVectors sums per row.
struct WideTarget {  // AVX-512
  static constexpr int kWidth = 16;
  static constexpr int kVectors = 4;
};
struct NarrowTarget {  // AVX2
  static constexpr int kWidth = 8;
  static constexpr int kVectors = 2;
};
struct PlainTarget {  // SSE2
  static constexpr int kWidth = 4;
  static constexpr int kVectors = 1;
};

template <typename Target>
struct VectorOf {
  typedef float Type __attribute__((vector_size(sizeof(float) * Target::kWidth)));
};
template <typename Target>
using Vector = typename VectorOf<Target>::Type;

#define LATHE_WIDE_TARGET __attribute__((target("arch=x86-64-v4")))
#define LATHE_NARROW_TARGET __attribute__((target("arch=x86-64-v3")))

// Returns the function for this CPU. The three differ only in their vectors.
template <typename Function>
Function* ForThisMachine(Function* wide, Function* narrow, Function* plain) {
  if (__builtin_cpu_supports("x86-64-v4")) return wide;
  return __builtin_cpu_supports("x86-64-v3") ? narrow : plain;
}

constexpr int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <typename V = Lanes>
LATHE_INLINE V Load(const float* x) {
  V vector;
  std::memcpy(&vector, x, sizeof(vector));
  return vector;
}

template <typename V>
LATHE_INLINE void Store(float* x, const V& vector) {
  std::memcpy(x, &vector, sizeof(vector));
}

// Calls run(std::integral_constant<int, n>) for n in [1, kMax].
template <int kMax, typename F>
LATHE_INLINE void WithConstant(int64_t n, const F& run) {
  if constexpr (kMax > 1) {
    if (n < kMax) return WithConstant<kMax - 1>(n, run);
  }
  run(std::integral_constant<int, kMax>());
}

// One factor of a product. Number (m, i) is at data[m * row_stride + i * step].
struct Factor {
  const float* data;
  int64_t row_stride;
  int64_t step;
};

// sums[m][v] += sum over i < n of a(m, i) * b[v][i * b_step ...], lane by lane. Prefetches as much
// from `ahead` as it reads of b.
template <int kRows, int kVectors, typename V>
LATHE_INLINE void AddProducts(const Factor& a, const float* const (&b)[kVectors],
                              const float* const (&ahead)[kVectors], int64_t b_step, int64_t n,
                              V (&sums)[kRows][kVectors]) {
  for (int64_t i = 0; i < n; ++i) {
    V w[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      w[v] = Load<V>(b[v] + i * b_step);
      __builtin_prefetch(ahead[v] + i * b_step);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const float x = a.data[m * a.row_stride + i * a.step];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[m][v] += w[v] * x;
    }
  }
}

// Writes scores [num_rows, kKeyBlock] of rows x [.., d] with the first `num_vectors` vectors of
// keys, each stored as [d, kLanes]. Prefetches `ahead`, which has the same shape.
template <typename Target>
LATHE_INLINE void ScoreTile(const float* x, int64_t x_stride, int64_t num_rows,
                            const float* const (&keys)[kKeyVectors],
                            const float* const (&ahead)[kKeyVectors], int64_t num_vectors,
                            int64_t d, float* scores) {
  constexpr int kWidth = Target::kWidth;
  WithConstant<kTileRows>(num_rows, [&](auto rows) LATHE_INLINE_LAMBDA {
    constexpr int kRows = rows;
    const int64_t end = num_vectors * kLanes;
    for (int64_t first = 0; first < end; first += Target::kVectors * kWidth) {
      WithConstant<Target::kVectors>((end - first) / kWidth, [&](auto vectors) LATHE_INLINE_LAMBDA {
        constexpr int kVectors = vectors;
        const float* b[kVectors];
        const float* next[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          const int64_t key = first + v * kWidth;
          b[v] = keys[key / kLanes] + key % kLanes;
          next[v] = ahead[key / kLanes] + key % kLanes;
        }
        Vector<Target> sums[kRows][kVectors] = {};
        AddProducts<kRows, kVectors>({x, x_stride, 1}, b, next, kLanes, d, sums);
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            Store(scores + m * kKeyBlock + first + v * kWidth, sums[m][v]);
          }
        }
      });
    }
  });
}

// out[m] += sum over i < n of a(m, i) * (row i of b), each `width` numbers, a multiple of kLanes.
// Row i of b is at b[i / run] + i % run * b_stride. Prefetches `ahead`, which has the same layout.
template <typename Target>
LATHE_INLINE void WeighTile(const Factor& a, int64_t num_rows, const float* const* b,
                            const float* const* ahead, int64_t run, int64_t b_stride, int64_t n,
                            int64_t width, bool is_first, float* const (&out)[kTileRows]) {
  constexpr int kWidth = Target::kWidth;
  WithConstant<kTileRows>(num_rows, [&](auto rows) LATHE_INLINE_LAMBDA {
    constexpr int kRows = rows;
    // With few rows, registers remain for more vectors of b.
    constexpr int kMost = Target::kVectors * (kRows <= 3 ? 2 : 1);
    for (int64_t first = 0; first < width; first += kMost * kWidth) {
      WithConstant<kMost>((width - first) / kWidth, [&](auto vectors) LATHE_INLINE_LAMBDA {
        constexpr int kVectors = vectors;
        Vector<Target> sums[kRows][kVectors] = {};
        if (!is_first) {
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
              sums[m][v] = Load<Vector<Target>>(out[m] + first + v * kWidth);
            }
          }
        }
        for (int64_t i = 0; i < n; i += run) {
          const float* source[kVectors];
          const float* next[kVectors];
          for (int v = 0; v < kVectors; ++v) {
            source[v] = b[i / run] + first + v * kWidth;
            next[v] = ahead[i / run] + first + v * kWidth;
          }
          AddProducts<kRows, kVectors>({a.data + i * a.step, a.row_stride, a.step}, source, next,
                                       b_stride, std::min(run, n - i), sums);
        }
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) Store(out[m] + first + v * kWidth, sums[m][v]);
        }
      });
    }
  });
}

// WeighTile for contiguous rows of b.
template <typename Target>
LATHE_INLINE void AddRows(const Factor& a, int64_t num_rows, const float* b, int64_t b_stride,
                          int64_t n, int64_t width, bool is_first, float* const (&out)[kTileRows]) {
  WeighTile<Target>(a, num_rows, &b, &b, /*run=*/n, b_stride, n, width, is_first, out);
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

// Returns the sum of the lanes, in all lanes.
LATHE_INLINE Lanes SumOfLanes(Lanes x) {
  x = x + __builtin_shuffle(x, kLaneIndex ^ 8);
  x = x + __builtin_shuffle(x, kLaneIndex ^ 4);
  x = x + __builtin_shuffle(x, kLaneIndex ^ 2);
  return x + __builtin_shuffle(x, kLaneIndex ^ 1);
}

// y = x * factor for `size` numbers, then zeros up to `padded_size`.
LATHE_INLINE void CopyScaled(const float* x, float factor, int64_t size, int64_t padded_size,
                             float* y) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
  for (int64_t i = size; i < padded_size; ++i) y[i] = 0;
}

// Transposes 16 vectors in place: four rounds that swap blocks off the diagonal.
LATHE_INLINE void TransposeSquare(Lanes (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    const Words is_high = (kLaneIndex & step) != 0;
    const Words low = (is_high & (kLaneIndex - step + 16)) | (~is_high & kLaneIndex);
    const Words high = (is_high & (kLaneIndex + 16)) | (~is_high & (kLaneIndex + step));
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & step) continue;
      const Lanes a = rows[i];
      const Lanes b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

// Packs rows [num_rows <= kKeyBlock, d] as vectors of kLanes rows, [num_rows / kLanes, d, kLanes].
// Missing rows of the last vector are zero.
LATHE_INLINE void PackTransposed(const float* rows, int64_t row_stride, int64_t num_rows, int64_t d,
                                 float* packed) {
  for (int64_t first = 0; first < num_rows; first += kLanes) {
    const int64_t size = std::min(kLanes, num_rows - first);
    const float* source = rows + first * row_stride;
    float* part = packed + first * d;
    for (int64_t i = 0; i < d; i += kLanes) {
      const int64_t width = std::min(kLanes, d - i);
      Lanes square[kLanes] = {};
      if (width == kLanes && size == kLanes) {
#pragma GCC unroll 16
        for (int64_t row = 0; row < kLanes; ++row)
          square[row] = Load(source + row * row_stride + i);
      } else {
        for (int64_t row = 0; row < size; ++row) {
          std::memcpy(&square[row], source + row * row_stride + i,
                      static_cast<size_t>(width) * sizeof(float));
        }
      }
      TransposeSquare(square);
      if (width == kLanes) {
#pragma GCC unroll 16
        for (int64_t row = 0; row < kLanes; ++row) Store(part + (i + row) * kLanes, square[row]);
      } else {
        for (int64_t row = 0; row < width; ++row) Store(part + (i + row) * kLanes, square[row]);
      }
    }
  }
}

}  // namespace lathe::worker::attention
