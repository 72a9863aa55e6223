// Hot file, free of torch: transposes a part of a matrix into a panel, for products with W.
#pragma once

#include <algorithm>
#include <cstdint>

#include "services/worker/kernels/cpu/matmul/panel_block.h"

namespace lathe::worker {

// Interleave the numbers of two vectors: of their first halves, and of their second halves.
inline constexpr Halves kZipFirst = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
inline constexpr Halves kZipSecond = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
                                      53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58,
                                      27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// Stores the numbers of sixteen rows of the matrix, one vector each, as units of a panel.
template <bool kIsBf16>
LATHE_INLINE void StoreTransposed(const Words (&rows)[kLanes], Words* transposed) {
  if constexpr (kIsBf16) {
    for (int64_t i = 0; i < kLanes; i += 2) {
      const auto upper = (Halves)rows[i];
      const auto lower = (Halves)rows[i + 1];
      transposed[i / 2 * kPanelVectors] = (Words)__builtin_shuffle(upper, lower, kZipFirst);
      transposed[i / 2 * kPanelVectors + 1] = (Words)__builtin_shuffle(upper, lower, kZipSecond);
    }
  } else {
    for (int64_t i = 0; i < kLanes; ++i) transposed[i * kPanelVectors] = rows[i];
  }
}

// Writes columns [column, column + kMatmulPanel) of the matrix to `transposed` as a panel whose
// units are rows [begin, begin + depth), rounded up to sixteen rows. `column` and `begin` are
// multiples of kMatmulPanel. Positions outside the matrix are zero. Hardware does not predict this
// order of reads, so each line is prefetched one panel ahead.
template <bool kIsBf16>
LATHE_INLINE void TransposePanel(const WeightPanels& panels, int64_t column, int64_t begin,
                                 int64_t depth, Words* transposed) {
  constexpr int64_t kNumbers = kIsBf16 ? 2 : 1;
  const int64_t num_units = panels.PanelBytes() / (kMatmulPanel * kUnitBytes);
  const auto* words = static_cast<const Words*>(panels.data);
  for (int64_t row = begin; row < begin + depth; row += kLanes) {
    const Words* from =
        words + row / kMatmulPanel * num_units * kPanelVectors + row % kMatmulPanel / kLanes;
    Words* to = transposed + (row - begin) / kNumbers * kPanelVectors;
    // Prefetching past the last panel has no effect.
    const int64_t ahead = num_units * kPanelVectors;
    for (int64_t at = 0; at < kMatmulPanel; at += kLanes * kNumbers, to += kNumbers) {
      const int64_t unit = (column + at) / kNumbers;
      const int64_t count = std::clamp<int64_t>(num_units - unit, 0, kLanes);
      Words rows[kLanes];
      if (count == kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) {
          const Words* const line = from + (unit + i) * kPanelVectors;
          rows[i] = *line;
          __builtin_prefetch(line + ahead);
        }
      } else {
        for (int64_t i = 0; i < kLanes; ++i) rows[i] = Words{};
        for (int64_t i = 0; i < count; ++i) rows[i] = from[(unit + i) * kPanelVectors];
      }
      Transpose(rows);
      StoreTransposed<kIsBf16>(rows, to);
    }
  }
}

}  // namespace lathe::worker
