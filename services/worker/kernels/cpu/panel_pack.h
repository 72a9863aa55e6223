// Hot file, free of torch: parts of a frozen matrix rearranged for products of 64 columns at a
// time.
//
// Legend: a unit is what one multiply-add of a lane takes of the inner index, four bytes: two bf16
// numbers, or one fp32 number. A panel holds kMatmulPanel columns of some units, unit by unit:
// [units][kPanelVectors][kLanes].
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "services/worker/kernels/cpu/vectors.h"
#include "services/worker/kernels/cpu/weight_matmul.h"

namespace lathe::worker {

inline constexpr int64_t kPanelVectors = kMatmulPanel / kLanes;

typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));  // bf16

// Numbers of two vectors in turn, of their first and of their second halves.
inline constexpr Halves kZipFirst = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
inline constexpr Halves kZipSecond = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
                                      53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58,
                                      27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// How a matrix becomes a panel: numbers in one of its words of four bytes, and where a word of one
// vector goes.
struct Bf16AsBf16 {
  static constexpr int64_t kNumbersPerWord = 2;
  static LATHE_INLINE void Store(const Words& words, int64_t word, int64_t vector, Words* panel) {
    panel[word * kPanelVectors + vector] = words;
  }
};

struct Bf16AsFp32 {
  static constexpr int64_t kNumbersPerWord = 2;
  static LATHE_INLINE void Store(const Words& words, int64_t word, int64_t vector, Words* panel) {
    panel[2 * word * kPanelVectors + vector] = words << 16;
    panel[(2 * word + 1) * kPanelVectors + vector] = words & static_cast<int32_t>(0xffff0000);
  }
};

struct Fp32AsFp32 {
  static constexpr int64_t kNumbersPerWord = 1;
  static LATHE_INLINE void Store(const Words& words, int64_t word, int64_t vector, Words* panel) {
    panel[word * kPanelVectors + vector] = words;
  }
};

// Inner index along a row of the matrix: panel columns are rows [row, row + kMatmulPanel), units
// are numbers [begin, begin + depth) of them. Missing rows and numbers are zero.
template <typename Kind>
LATHE_INLINE void PackTransposed(const WeightMatmulTask& task, int64_t row, int64_t begin,
                                 int64_t depth, Words* panel) {
  constexpr int64_t kNumberBytes = 4 / Kind::kNumbersPerWord;
  constexpr int64_t kStep = kLanes * Kind::kNumbersPerWord;
  const auto* weight = static_cast<const char*>(task.weight);
  const int64_t row_bytes = task.k * kNumberBytes;
  for (int64_t v = 0; v < kPanelVectors; ++v) {
    const int64_t first = row + v * kLanes;
    const int64_t num_rows = std::clamp<int64_t>(task.n - first, 0, kLanes);
    for (int64_t d = 0; d < depth; d += kStep) {
      const int64_t size = std::min(kStep, depth - d);
      Words rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) rows[i] = Words{};
      const char* source = weight + first * row_bytes + (begin + d) * kNumberBytes;
      if (num_rows == kLanes && size == kStep) {
        for (int64_t i = 0; i < kLanes; ++i) {
          std::memcpy(&rows[i], source + i * row_bytes, sizeof(Words));
          // Sixteen streams are more than the processor follows by itself.
          __builtin_prefetch(source + i * row_bytes + 4 * sizeof(Words));
        }
      } else {
        const auto bytes = static_cast<size_t>(size * kNumberBytes);
        for (int64_t i = 0; i < num_rows; ++i) {
          std::memcpy(&rows[i], source + i * row_bytes, bytes);
        }
      }
      Transpose(rows);
      const int64_t num_words = (size + Kind::kNumbersPerWord - 1) / Kind::kNumbersPerWord;
      const int64_t first_word = d / Kind::kNumbersPerWord;
      if (num_words == kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) Kind::Store(rows[i], first_word + i, v, panel);
      } else {
        for (int64_t i = 0; i < num_words; ++i) Kind::Store(rows[i], first_word + i, v, panel);
      }
    }
  }
}

// Inner index down the columns of the matrix: panel columns are columns [column, column +
// kMatmulPanel), units are rows [begin, begin + depth).
template <typename Kind>
LATHE_INLINE void PackPlain(const WeightMatmulTask& task, int64_t column, int64_t begin,
                            int64_t depth, Words* panel) {
  constexpr int64_t kRowsAhead = 16;
  constexpr int64_t kNumberBytes = 4 / Kind::kNumbersPerWord;
  const int64_t row_bytes = task.k * kNumberBytes;
  const auto size = static_cast<size_t>(std::min(kMatmulPanel, task.k - column) * kNumberBytes);
  const char* source =
      static_cast<const char*>(task.weight) + begin * row_bytes + column * kNumberBytes;
  for (int64_t d = 0; d < depth; d += Kind::kNumbersPerWord) {
    alignas(64) char lines[Kind::kNumbersPerWord][kMatmulPanel * kNumberBytes];
    for (int64_t i = 0; i < Kind::kNumbersPerWord; ++i) {
      const char* from = source + (d + i) * row_bytes;
      __builtin_prefetch(from + kRowsAhead * row_bytes);
      __builtin_prefetch(from + kRowsAhead * row_bytes + 64);
      if (d + i >= depth || size != sizeof(lines[i])) std::memset(lines[i], 0, sizeof(lines[i]));
      if (size == sizeof(lines[i]) && d + i < depth) {
        std::memcpy(lines[i], from, sizeof(lines[i]));
      } else if (d + i < depth) {
        std::memcpy(lines[i], from, size);
      }
    }
    if constexpr (Kind::kNumbersPerWord == 1) {
      for (int64_t v = 0; v < kPanelVectors; ++v) {
        Words words;
        std::memcpy(&words, lines[0] + v * sizeof(words), sizeof(words));
        Kind::Store(words, d, v, panel);
      }
    } else {
      for (int64_t v = 0; v < kPanelVectors; v += 2) {
        Halves upper, lower;
        std::memcpy(&upper, lines[0] + v * kLanes * kNumberBytes, sizeof(upper));
        std::memcpy(&lower, lines[1] + v * kLanes * kNumberBytes, sizeof(lower));
        const Halves first = __builtin_shuffle(upper, lower, kZipFirst);
        const Halves second = __builtin_shuffle(upper, lower, kZipSecond);
        Kind::Store((Words)first, d / 2, v, panel);
        Kind::Store((Words)second, d / 2, v + 1, panel);
      }
    }
  }
}

}  // namespace lathe::worker
