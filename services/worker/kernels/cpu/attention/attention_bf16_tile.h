// Tiles of the attention kernels on bf16 operands with fp32 sums (AVX512-BF16).
// Hot file, free of torch: everything here is inlined into functions with the same target.
//
// Legend: a word is two bf16 numbers that are adjacent along the inner index of a product, the
// first in the low half. Pairs have absolute positions (numbers 2i and 2i + 1 of a head, keys or
// rows 2i and 2i + 1 of a sequence). So each sum is one chain of two-element dot products in the
// order of the inner index. An unwanted neighbour gets a factor of zero.
#pragma once

#include <immintrin.h>

#include "services/worker/kernels/cpu/attention/attention_tile.h"

namespace lathe::worker::attention {

#define LATHE_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define LATHE_BF16_LAMBDA \
  __attribute__((always_inline, target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

constexpr int64_t kWordNumbers = 2;
constexpr int64_t kLaneWords = kLanes / kWordNumbers;         // per row of kLanes numbers
constexpr int64_t kKeyBlockWords = kKeyBlock / kWordNumbers;  // per row of scores

typedef int16_t Halves __attribute__((vector_size(4 * kLanes)));

// WithConstant for lambdas of this target.
template <int kMax, typename F>
LATHE_BF16_TARGET LATHE_INLINE void WithConstantBf16(int64_t n, const F& run) {
  if constexpr (kMax > 1) {
    if (n < kMax) return WithConstantBf16<kMax - 1>(n, run);
  }
  run(std::integral_constant<int, kMax>());
}

LATHE_INLINE Words LoadWords(const int32_t* x) {
  Words words;
  std::memcpy(&words, x, sizeof(words));
  return words;
}

LATHE_INLINE void StoreWords(int32_t* x, const Words& words) {
  std::memcpy(x, &words, sizeof(words));
}

// Rounds 32 numbers to bf16, to nearest even. `first` has the lower 16.
LATHE_BF16_TARGET LATHE_INLINE Words RoundPair(const Lanes& first, const Lanes& second) {
  return (Words)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

// Pairs the numbers of two vectors into words, lane by lane.
LATHE_BF16_TARGET LATHE_INLINE Words ZipPair(const Lanes& first, const Lanes& second) {
  constexpr Halves kZip = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (Words)__builtin_shuffle((Halves)RoundPair(first, second), kZip);
}

// Loads the first `size` <= kLanes numbers; the rest is zero.
LATHE_INLINE Lanes LoadPart(const float* x, int64_t size) {
  if (size >= kLanes) return Load(x);
  Lanes vector = {};
  if (size > 0) std::memcpy(&vector, x, static_cast<size_t>(size) * sizeof(float));
  return vector;
}

// Rounds a row of d numbers to words, padded with zeros to a multiple of kLanes numbers.
LATHE_BF16_TARGET LATHE_INLINE void RoundRow(const float* x, int64_t d, int32_t* y) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= d; i += 2 * kLanes) {
    StoreWords(y + i / kWordNumbers, RoundPair(Load(x + i), Load(x + i + kLanes)));
  }
  if (i == d) return;
  const Words words = RoundPair(LoadPart(x + i, d - i), LoadPart(x + i + kLanes, d - i - kLanes));
  std::memcpy(y + i / kWordNumbers, &words,
              static_cast<size_t>(RoundUp(d - i, kLanes) / kWordNumbers) * sizeof(int32_t));
}

// Pairs two rows of d numbers into words [padded d]. `second` may be null: zeros.
LATHE_BF16_TARGET LATHE_INLINE void ZipRows(const float* first, const float* second, int64_t d,
                                            int32_t* y) {
  for (int64_t i = 0; i < d; i += kLanes) {
    const Lanes lower = LoadPart(first + i, d - i);
    const Lanes upper = second == nullptr ? Lanes{} : LoadPart(second + i, d - i);
    StoreWords(y + i, ZipPair(lower, upper));
  }
}

// Packs rows [num_rows <= kKeyBlock, d] as words of vectors of kLanes rows, [num_rows / kLanes, d /
// 2, kLanes]. Missing rows of the last vector are zero.
LATHE_BF16_TARGET LATHE_INLINE void PackTransposedWords(const float* rows, int64_t row_stride,
                                                        int64_t num_rows, int64_t d,
                                                        int32_t* packed) {
  const int64_t num_words = d / kWordNumbers;
  for (int64_t first = 0; first < num_rows; first += kLanes) {
    const int64_t size = std::min(kLanes, num_rows - first);
    const float* source = rows + first * row_stride;
    int32_t* part = packed + first * num_words;
    for (int64_t word = 0; word < num_words; word += kLanes) {
      const int64_t i = word * kWordNumbers;
      Lanes square[kLanes] = {};
      if (size == kLanes && i + 2 * kLanes <= d) {
#pragma GCC unroll 16
        for (int64_t row = 0; row < kLanes; ++row) {
          const float* x = source + row * row_stride + i;
          square[row] = (Lanes)RoundPair(Load(x), Load(x + kLanes));
        }
      } else {
        for (int64_t row = 0; row < size; ++row) {
          const float* x = source + row * row_stride + i;
          square[row] = (Lanes)RoundPair(LoadPart(x, d - i), LoadPart(x + kLanes, d - i - kLanes));
        }
      }
      TransposeSquare(square);
      const int64_t width = std::min(kLanes, num_words - word);
      if (width == kLanes) {
#pragma GCC unroll 16
        for (int64_t n = 0; n < kLanes; ++n) {
          StoreWords(part + (word + n) * kLanes, (Words)square[n]);
        }
      } else {
        for (int64_t n = 0; n < width; ++n) {
          StoreWords(part + (word + n) * kLanes, (Words)square[n]);
        }
      }
    }
  }
}

// One factor of a product. Word (m, i) is at data[m * row_stride + i * step].
struct WordFactor {
  const int32_t* data;
  int64_t row_stride;
  int64_t step;
};

// sums[m][v] += sum over i < n of the dot products of a(m, i) and b[v][i * b_step ...], lane by
// lane. Prefetches as much from `ahead` as it reads of b.
template <int kRows, int kVectors>
LATHE_BF16_TARGET LATHE_INLINE void AddDots(const WordFactor& a,
                                            const int32_t* const (&b)[kVectors],
                                            const int32_t* const (&ahead)[kVectors], int64_t b_step,
                                            int64_t n, Lanes (&sums)[kRows][kVectors]) {
  for (int64_t i = 0; i < n; ++i) {
    Words w[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      w[v] = LoadWords(b[v] + i * b_step);
      __builtin_prefetch(ahead[v] + i * b_step);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Words x = Words{} + a.data[m * a.row_stride + i * a.step];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[m][v] = (Lanes)_mm512_dpbf16_ps((__m512)sums[m][v], (__m512bh)x, (__m512bh)w[v]);
      }
    }
  }
}

// Writes scores [num_rows, kKeyBlock] of rows x [.., num_words] with the first `num_vectors`
// vectors of keys, each stored as [num_words, kLanes]. Prefetches `ahead`, which has the same
// shape.
LATHE_BF16_TARGET LATHE_INLINE void ScoreTileBf16(const int32_t* x, int64_t x_stride,
                                                  int64_t num_rows,
                                                  const int32_t* const (&keys)[kKeyVectors],
                                                  const int32_t* const (&ahead)[kKeyVectors],
                                                  int64_t num_vectors, int64_t num_words,
                                                  float* scores) {
  WithConstantBf16<kTileRows>(num_rows, [&](auto rows) LATHE_BF16_LAMBDA {
    WithConstantBf16<kKeyVectors>(num_vectors, [&](auto vectors) LATHE_BF16_LAMBDA {
      constexpr int kRows = rows;
      constexpr int kVectors = vectors;
      const int32_t* b[kVectors];
      const int32_t* next[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        b[v] = keys[v];
        next[v] = ahead[v];
      }
      Lanes sums[kRows][kVectors] = {};
      AddDots<kRows, kVectors>({x, x_stride, 1}, b, next, kLanes, num_words, sums);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) Store(scores + m * kKeyBlock + v * kLanes, sums[m][v]);
      }
    });
  });
}

// out[m] += sum over i < n of the dot products of a(m, i) and row i of b, each `width` numbers of
// out, a multiple of kLanes. Row i of b is at b[i / run] + i % run * b_stride. Prefetches `ahead`,
// which has the same layout.
LATHE_BF16_TARGET LATHE_INLINE void WeighTileBf16(const WordFactor& a, int64_t num_rows,
                                                  const int32_t* const* b,
                                                  const int32_t* const* ahead, int64_t run,
                                                  int64_t b_stride, int64_t n, int64_t width,
                                                  bool is_first, float* const (&out)[kTileRows]) {
  WithConstantBf16<kTileRows>(num_rows, [&](auto rows) LATHE_BF16_LAMBDA {
    constexpr int kRows = rows;
    // With few rows, registers remain for more vectors of b.
    constexpr int kMost = kRows <= 3 ? 8 : 4;
    for (int64_t first = 0; first < width; first += kMost * kLanes) {
      WithConstantBf16<kMost>((width - first) / kLanes, [&](auto vectors) LATHE_BF16_LAMBDA {
        constexpr int kVectors = vectors;
        Lanes sums[kRows][kVectors] = {};
        if (!is_first) {
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sums[m][v] = Load(out[m] + first + v * kLanes);
          }
        }
        for (int64_t i = 0; i < n; i += run) {
          const int32_t* source[kVectors];
          const int32_t* next[kVectors];
          for (int v = 0; v < kVectors; ++v) {
            source[v] = b[i / run] + first + v * kLanes;
            next[v] = ahead[i / run] + first + v * kLanes;
          }
          AddDots<kRows, kVectors>({a.data + i * a.step, a.row_stride, a.step}, source, next,
                                   b_stride, std::min(run, n - i), sums);
        }
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) Store(out[m] + first + v * kLanes, sums[m][v]);
        }
      });
    }
  });
}

// WeighTileBf16 for contiguous rows of b.
LATHE_BF16_TARGET LATHE_INLINE void AddRowsBf16(const WordFactor& a, int64_t num_rows,
                                                const int32_t* b, int64_t b_stride, int64_t n,
                                                int64_t width, bool is_first,
                                                float* const (&out)[kTileRows]) {
  WeighTileBf16(a, num_rows, &b, &b, /*run=*/n, b_stride, n, width, is_first, out);
}

}  // namespace lathe::worker::attention
