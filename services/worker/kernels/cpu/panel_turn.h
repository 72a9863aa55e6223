// Hot file, free of torch: a part of the transposed matrix, as products with W need it, in the
// layout of a panel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "services/worker/kernels/cpu/panel_words.h"

namespace lathe::worker {

// Numbers of two vectors in turn, of their first and of their second halves.
inline constexpr Halves kZipFirst = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
inline constexpr Halves kZipSecond = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
                                      53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58,
                                      27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// Numbers of sixteen rows of the matrix, a vector of each, as units of the turned panel.
template <bool kIsBf16>
LATHE_INLINE void StoreTurned(const Words (&rows)[kLanes], Words* turned) {
  if constexpr (kIsBf16) {
    for (int64_t i = 0; i < kLanes; i += 2) {
      const auto upper = (Halves)rows[i];
      const auto lower = (Halves)rows[i + 1];
      turned[i / 2 * kPanelVectors] = (Words)__builtin_shuffle(upper, lower, kZipFirst);
      turned[i / 2 * kPanelVectors + 1] = (Words)__builtin_shuffle(upper, lower, kZipSecond);
    }
  } else {
    for (int64_t i = 0; i < kLanes; ++i) turned[i * kPanelVectors] = rows[i];
  }
}

// `turned` holds columns [column, column + kMatmulPanel) of the matrix as a panel, of which the
// units are rows [begin, begin + depth); whole sixteens of them are written. `column` and `begin`
// are multiples of kMatmulPanel. What the matrix has not is zero. Processors do not foresee this
// order of reads, so each line is asked for a panel ahead.
template <bool kIsBf16>
LATHE_INLINE void TurnPanel(const WeightPanels& panels, int64_t column, int64_t begin,
                            int64_t depth, Words* turned) {
  constexpr int64_t kNumbers = kIsBf16 ? 2 : 1;
  const int64_t num_units = panels.PanelBytes() / (kMatmulPanel * kUnitBytes);
  const auto* words = static_cast<const Words*>(panels.data);
  for (int64_t row = begin; row < begin + depth; row += kLanes) {
    const Words* from =
        words + row / kMatmulPanel * num_units * kPanelVectors + row % kMatmulPanel / kLanes;
    Words* to = turned + (row - begin) / kNumbers * kPanelVectors;
    // Past the last panel nothing comes of it.
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
      StoreTurned<kIsBf16>(rows, to);
    }
  }
}

}  // namespace lathe::worker
