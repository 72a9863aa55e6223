// Building blocks of the attention kernels: products of small tiles, kept in registers, and the
// layouts of their factors. Hot file, free of torch: include it where the arithmetic's instruction
// set is the target.
#pragma once

#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"

// One copy of a long function for all callers.
#define LATHE_SHARED __attribute__((noinline, noclone))

namespace lathe::worker::attention {

// Calls run(std::integral_constant<int, n>) for n in [1, kMax].
template <int kMax, typename F>
LATHE_INLINE void WithConstant(int64_t n, const F& run) {
  if constexpr (kMax > 1) {
    if (n < kMax) return WithConstant<kMax - 1>(n, run);
  }
  run(std::integral_constant<int, kMax>());
}

// sums[m][v] += sum over i < n of a[m * a_stride + i * a_step] * b(i, v)[..], lane by lane.
// Prefetches ahead(i, v) for each b(i, v).
template <typename Arithmetic, int kRows, int kVectors, typename Element, typename F, typename G>
LATHE_INLINE void AddProducts(const Element* a, int64_t a_stride, int64_t a_step, const F& b,
                              const G& ahead, int64_t n,
                              typename Arithmetic::Sums (&sums)[kRows][kVectors]) {
  for (int64_t i = 0; i < n; ++i) {
    typename Arithmetic::Elements w[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      auto loaded = Load<typename Arithmetic::Elements>(b(i, v));
      // Keeps the vector in a register. With few rows GCC would load it again for each of them.
      if constexpr (kRows > 1) asm("" : "+v"(loaded));
      w[v] = loaded;
      __builtin_prefetch(ahead(i, v));
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const Element x = a[m * a_stride + i * a_step];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Arithmetic::AddProduct(x, w[v], sums[m][v]);
    }
  }
}

// Writes scores [num_rows, kKeyBlock] of rows x [.., n] with the first `num_vectors` vectors of
// keys, each stored as [n, kLanes]. Prefetches `ahead`, which has the same shape.
template <typename Arithmetic, typename Element = typename Arithmetic::Element>
LATHE_SHARED void ScoreTile(const Element* x, int64_t x_stride, int64_t num_rows,
                            const Element* const (&keys)[kKeyVectors],
                            const Element* const (&ahead)[kKeyVectors], int64_t num_vectors,
                            int64_t n, float* scores) {
  constexpr int kWidth = Arithmetic::kWidth;
  WithConstant<kTileRows>(num_rows, [&](auto rows) LATHE_INLINE_LAMBDA {
    constexpr int kRows = rows;
    const int64_t end = num_vectors * kLanes;
    for (int64_t first = 0; first < end; first += Arithmetic::kVectors * kWidth) {
      const int64_t num_left = (end - first) / kWidth;
      WithConstant<Arithmetic::kVectors>(num_left, [&](auto vectors) LATHE_INLINE_LAMBDA {
        constexpr int kVectors = vectors;
        const Element* b[kVectors];
        const Element* next[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          const int64_t key = first + v * kWidth;
          b[v] = keys[key / kLanes] + key % kLanes;
          next[v] = ahead[key / kLanes] + key % kLanes;
        }
        const auto key_at = [&](int64_t i, int v) LATHE_INLINE_LAMBDA { return b[v] + i * kLanes; };
        const auto next_at = [&](int64_t i, int v)
                                 LATHE_INLINE_LAMBDA { return next[v] + i * kLanes; };
        typename Arithmetic::Sums sums[kRows][kVectors] = {};
        AddProducts<Arithmetic>(x, x_stride, 1, key_at, next_at, n, sums);
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

// Rows of the left factor of WeighTile: rows [.., kKeyBlock / kNumbers] of a tile, or columns
// [.., kKeyBlock] of a chunk.
enum class Weights { kRows, kColumns };

// out[m] += sum over i < n of element i of row or column m of `a` * (row i of b), each `width`
// numbers of out, a multiple of kLanes. Row i of b is at b[i / run] + i % run * b_stride.
// Prefetches `ahead`, which has the same layout.
template <typename Arithmetic, Weights kWeights, typename Element = typename Arithmetic::Element>
LATHE_SHARED void WeighTile(const Element* a, int64_t num_rows, const Element* const* b,
                            const Element* const* ahead, int64_t run, int64_t b_stride, int64_t n,
                            int64_t width, bool is_first, float* const (&out)[kTileRows]) {
  using Sums = typename Arithmetic::Sums;
  constexpr int kWidth = Arithmetic::kWidth;
  constexpr bool kAreRows = kWeights == Weights::kRows;
  constexpr int64_t kStride = kAreRows ? kKeyBlock / Arithmetic::kNumbers : 1;
  constexpr int64_t kStep = kAreRows ? 1 : kKeyBlock;
  WithConstant<kTileRows>(num_rows, [&](auto rows) LATHE_INLINE_LAMBDA {
    constexpr int kRows = rows;
    // With few rows, registers remain for more vectors of b.
    constexpr int kMost = Arithmetic::kVectors * (kRows <= 3 ? 2 : 1);
    for (int64_t first = 0; first < width; first += kMost * kWidth) {
      WithConstant<kMost>((width - first) / kWidth, [&](auto vectors) LATHE_INLINE_LAMBDA {
        constexpr int kVectors = vectors;
        Sums sums[kRows][kVectors] = {};
        if (!is_first) {
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sums[m][v] = Load<Sums>(out[m] + first + v * kWidth);
          }
        }
        for (int64_t i = 0, part = 0; i < n; i += run, ++part) {
          const auto at = [=](const Element* x) LATHE_INLINE_LAMBDA {
            return [=](int64_t k, int v)
                       LATHE_INLINE_LAMBDA { return x + k * b_stride + (first + v * kWidth); };
          };
          AddProducts<Arithmetic>(a + i * kStep, kStride, kStep, at(b[part]), at(ahead[part]),
                                  std::min(run, n - i), sums);
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
template <typename Arithmetic, Weights kWeights, typename Element = typename Arithmetic::Element>
LATHE_INLINE void AddRows(const Element* a, int64_t num_rows, const Element* b, int64_t b_stride,
                          int64_t n, int64_t width, bool is_first, float* const (&out)[kTileRows]) {
  WeighTile<Arithmetic, kWeights>(a, num_rows, &b, &b, /*run=*/n, b_stride, n, width, is_first,
                                  out);
}

// Numbers of a row in a vector of elements.
template <typename Arithmetic>
constexpr int64_t kAlong = Arithmetic::kWidth* Arithmetic::kNumbers;

// Returns a vector of elements of a row, scaled. Numbers from `size` on are zero.
template <typename Arithmetic>
LATHE_INLINE typename Arithmetic::Elements LoadAlong(const float* x, int64_t size, float factor) {
  using Numbers = typename Arithmetic::Sums;
  Numbers numbers[Arithmetic::kNumbers];
  for (int64_t j = 0; j < Arithmetic::kNumbers; ++j) {
    const int64_t i = j * Arithmetic::kWidth;
    numbers[j] = LoadUpTo<Numbers>(x + i, size - i) * factor;
  }
  return Arithmetic::Along(numbers);
}

// Packs a row of d numbers, scaled and padded with zeros to a multiple of kLanes numbers.
template <typename Arithmetic>
LATHE_INLINE void PackRow(const float* x, float factor, int64_t d,
                          typename Arithmetic::Element* y) {
  constexpr int64_t kStep = kAlong<Arithmetic>;
  const int64_t padded = RoundUp(d, kLanes);
  int64_t i = 0;
  for (; i + kStep <= d; i += kStep) {
    Store(y + i / Arithmetic::kNumbers, LoadAlong<Arithmetic>(x + i, kStep, factor));
  }
  for (; i < padded; i += kStep) {
    const auto elements = LoadAlong<Arithmetic>(x + i, d - i, factor);
    std::memcpy(
        y + i / Arithmetic::kNumbers, &elements,
        static_cast<size_t>(std::min(kStep, padded - i)) * sizeof(*y) / Arithmetic::kNumbers);
  }
}

// Packs rows of d numbers across each other, scaled: elements [n / kNumbers, padded d]. row(i)
// returns row i < n.
template <typename Arithmetic, typename F>
LATHE_INLINE void PackAcross(int64_t n, const F& row, float factor, int64_t d,
                             typename Arithmetic::Element* y) {
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
  for (int64_t first = 0; first < n; first += kNumbers) {
    const float* x[kNumbers] = {};
    for (int64_t j = 0; j < kNumbers && first + j < n; ++j) x[j] = row(first + j);
    for (int64_t i = 0; i < d; i += kLanes, y += kLanes) {
      Lanes numbers[kNumbers] = {};
      for (int64_t j = 0; j < kNumbers; ++j) {
        if (x[j] != nullptr) numbers[j] = LoadUpTo(x[j] + i, d - i) * factor;
      }
      Store(y, Arithmetic::Across(numbers));
    }
  }
}

// Packs rows [num_rows <= kKeyBlock, d] as vectors of kLanes rows, elements [num_rows / kLanes, d /
// kNumbers, kLanes]. Missing rows of the last vector are zero.
template <typename Arithmetic>
LATHE_SHARED void PackTransposed(const float* rows, int64_t row_stride, int64_t num_rows, int64_t d,
                                 typename Arithmetic::Element* packed) {
  constexpr int64_t kWidth = Arithmetic::kWidth;
  constexpr int64_t kStep = kAlong<Arithmetic>;
  const int64_t num_elements = d / Arithmetic::kNumbers;
  for (int64_t first = 0; first < RoundUp(num_rows, kLanes); first += kWidth) {
    const float* source = rows + first * row_stride;
    auto* part = packed + first / kLanes * kLanes * num_elements + first % kLanes;
    for (int64_t i = 0; i < d; i += kStep, part += kWidth * kLanes) {
      typename Arithmetic::Elements square[kWidth];
      if (first + kWidth <= num_rows && i + kStep <= d) {
#pragma GCC unroll 16
        for (int64_t row = 0; row < kWidth; ++row) {
          square[row] = LoadAlong<Arithmetic>(source + row * row_stride + i, kStep, 1.0f);
        }
      } else {
        for (int64_t row = 0; row < kWidth; ++row) {
          square[row] = typename Arithmetic::Elements{};
          if (first + row >= num_rows) continue;
          square[row] = LoadAlong<Arithmetic>(source + row * row_stride + i, d - i, 1.0f);
        }
      }
      TransposeSquare(square);
      const int64_t width = std::min(kWidth, num_elements - i / Arithmetic::kNumbers);
      if (width == kWidth) {
#pragma GCC unroll 16
        for (int64_t n = 0; n < kWidth; ++n) Store(part + n * kLanes, square[n]);
      } else {
        for (int64_t n = 0; n < width; ++n) Store(part + n * kLanes, square[n]);
      }
    }
  }
}

// Stores one row of values of a block of keys as elements.
template <typename Arithmetic>
LATHE_INLINE void StoreRow(const Lanes (&values)[kKeyVectors],
                           typename Arithmetic::Element* elements) {
  constexpr int64_t kNumbers = Arithmetic::kNumbers;
#pragma GCC unroll 4
  for (int64_t v = 0; v < kKeyVectors; v += kNumbers) {
    Lanes numbers[kNumbers];
    for (int64_t j = 0; j < kNumbers; ++j) numbers[j] = values[v + j];
    Store(elements + v * kLanes / kNumbers, Arithmetic::Along(numbers));
  }
}

}  // namespace lathe::worker::attention
