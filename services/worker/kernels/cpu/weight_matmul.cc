#include "services/worker/kernels/cpu/weight_matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "services/worker/kernels/cpu/vector_math.h"

// Legend: a unit is what one multiply-add of a lane takes of the inner index: two bf16 numbers, or
// one fp32 number. A panel holds kMatmulPanel columns of some units: [kVectors][kNumUnits][kLanes].
namespace lathe::worker {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kVectors = kMatmulPanel / kLanes;
// Inner numbers of one panel: 64 columns of them are 16 KiB in bf16 and 32 KiB in fp32, so that the
// panel stays in the first-level cache.
constexpr int64_t kPanelDepth = 128;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Words __attribute__((vector_size(4 * kLanes)));  // two bf16 each, the first lowest

typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));  // bf16

// Numbers of two vectors in turn, of their first and of their second halves.
constexpr Halves kZipFirst = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                              8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
constexpr Halves kZipSecond = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                               24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

#define LATHE_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

// 16 vectors of 16 words transposed in place: four rounds that swap blocks off the diagonal.
LATHE_INLINE void Transpose(Words (&rows)[kLanes]) {
  const auto swap = [&](int step, const Words& low, const Words& high) LATHE_INLINE_LAMBDA {
    for (int i = 0; i < kLanes; ++i) {
      if (i & step) continue;
      const Words a = rows[i];
      const Words b = rows[i + step];
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

// How a word of two bf16 numbers goes into a panel.
struct Bf16Panel {
  static constexpr int64_t kNumUnits = kPanelDepth / 2;
  static LATHE_INLINE void Store(const Words& words, int64_t word, Words* panel) {
    panel[word] = words;
  }
};

struct Fp32Panel {
  static constexpr int64_t kNumUnits = kPanelDepth;
  static LATHE_INLINE void Store(const Words& words, int64_t word, Words* panel) {
    panel[2 * word] = words << 16;
    panel[2 * word + 1] = words & static_cast<int32_t>(0xffff0000);
  }
};

// Inner index along a row of the matrix: panel columns are rows [row, row + kMatmulPanel), units
// are numbers [begin, begin + depth) of them. Missing rows and numbers are zero.
template <typename Panel>
LATHE_INLINE void PackTransposed(const WeightMatmulTask& task, int64_t row, int64_t begin,
                                 int64_t depth, Words* panel) {
  // What will be packed next: the same rows further on, or the next rows. Each stretch is too short
  // for the processor to see it coming.
  const int64_t ahead = begin + depth < task.k ? depth : kMatmulPanel * task.k - begin;
  for (int64_t v = 0; v < kVectors; ++v) {
    Words* part = panel + v * Panel::kNumUnits;
    const int64_t first = row + v * kLanes;
    const int64_t num_rows = std::clamp<int64_t>(task.n - first, 0, kLanes);
    for (int64_t d = 0; d < depth; d += 2 * kLanes) {
      const int64_t size = std::min(2 * kLanes, depth - d);
      Words rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) rows[i] = Words{};
      const uint16_t* source = task.weight + first * task.k + begin + d;
      if (num_rows == kLanes && size == 2 * kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) {
          std::memcpy(&rows[i], source + i * task.k, sizeof(Words));
          __builtin_prefetch(source + i * task.k + ahead);
        }
      } else {
        for (int64_t i = 0; i < num_rows; ++i) {
          std::memcpy(&rows[i], source + i * task.k, static_cast<size_t>(2 * size));
        }
      }
      Transpose(rows);
      const int64_t num_words = (size + 1) / 2;
      if (num_words == kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) Panel::Store(rows[i], d / 2 + i, part);
      } else {
        for (int64_t i = 0; i < num_words; ++i) Panel::Store(rows[i], d / 2 + i, part);
      }
    }
  }
}

// Inner index down the columns of the matrix: panel columns are columns [column, column +
// kMatmulPanel), units are rows [begin, begin + depth).
template <typename Panel>
LATHE_INLINE void PackPlain(const WeightMatmulTask& task, int64_t column, int64_t begin,
                            int64_t depth, Words* panel) {
  const int64_t num_columns = std::min(kMatmulPanel, task.k - column);
  for (int64_t d = 0; d < depth; d += 2) {
    uint16_t pair[2][kMatmulPanel] = {};
    const uint16_t* source = task.weight + (begin + d) * task.k + column;
    const auto size = static_cast<size_t>(2 * num_columns);
    for (int64_t i = 0; i < 2; ++i) {
      __builtin_prefetch(source + (kPanelDepth + i) * task.k);
      __builtin_prefetch(source + (kPanelDepth + i) * task.k + 2 * kLanes);
    }
    if (num_columns == kMatmulPanel) {
      std::memcpy(pair[0], source, sizeof(pair[0]));
      if (d + 1 < depth) std::memcpy(pair[1], source + task.k, sizeof(pair[1]));
    } else {
      std::memcpy(pair[0], source, size);
      if (d + 1 < depth) std::memcpy(pair[1], source + task.k, size);
    }
    for (int64_t v = 0; v < kVectors; v += 2) {
      Halves upper, lower;
      std::memcpy(&upper, pair[0] + v * kLanes, sizeof(upper));
      std::memcpy(&lower, pair[1] + v * kLanes, sizeof(lower));
      const Halves first = __builtin_shuffle(upper, lower, kZipFirst);
      const Halves second = __builtin_shuffle(upper, lower, kZipSecond);
      Panel::Store((Words)first, d / 2, panel + v * Panel::kNumUnits);
      Panel::Store((Words)second, d / 2, panel + (v + 1) * Panel::kNumUnits);
    }
  }
}

LATHE_SIMD_CLONES
void PackTransposedBf16(const WeightMatmulTask& task, int64_t row, int64_t begin, int64_t depth,
                        Words* panel) {
  PackTransposed<Bf16Panel>(task, row, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackTransposedFp32(const WeightMatmulTask& task, int64_t row, int64_t begin, int64_t depth,
                        Words* panel) {
  PackTransposed<Fp32Panel>(task, row, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackPlainBf16(const WeightMatmulTask& task, int64_t column, int64_t begin, int64_t depth,
                   Words* panel) {
  PackPlain<Bf16Panel>(task, column, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackPlainFp32(const WeightMatmulTask& task, int64_t column, int64_t begin, int64_t depth,
                   Words* panel) {
  PackPlain<Fp32Panel>(task, column, begin, depth, panel);
}

// What one packed panel adds to all rows.
struct PanelProduct {
  const void* x;  // at the panel's first unit
  int64_t x_stride;
  const Words* panel;
  int64_t units;
  float* y;  // at the panel's first column; whole panels wide
  int64_t y_stride;
  int64_t num_rows;
  bool is_first;  // y holds nothing yet
};

// Rows that share one reading of the panel: six times four vectors of sums, four of the panel and
// one of x fill the 32 registers of AVX-512.
constexpr int kBlockRows = 6;

template <int kRows>
LATHE_BF16_TARGET void BlockBf16(const PanelProduct& product, int64_t row) {
  const auto* x = static_cast<const uint16_t*>(product.x) + row * product.x_stride;
  float* y = product.y + row * product.y_stride;
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[m][v] = product.is_first ? _mm512_setzero_ps()
                                    : _mm512_loadu_ps(y + m * product.y_stride + v * kLanes);
    }
  }
  for (int64_t u = 0; u < product.units; ++u) {
    __m512bh w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      w[v] = (__m512bh)_mm512_loadu_si512(product.panel + v * Bf16Panel::kNumUnits + u);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      int32_t pair;
      std::memcpy(&pair, x + m * product.x_stride + 2 * u, sizeof(pair));
      const auto both = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[m][v] = _mm512_dpbf16_ps(sums[m][v], both, w[v]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(y + m * product.y_stride + v * kLanes, sums[m][v]);
    }
  }
}

// kColumns: vectors at a time, so that the sums fit the registers.
template <int kRows, int kColumns>
LATHE_INLINE void BlockFp32(const PanelProduct& product, int64_t row) {
  const auto* x = static_cast<const float*>(product.x) + row * product.x_stride;
  for (int64_t first = 0; first < kVectors; first += kColumns) {
    float* y = product.y + row * product.y_stride + first * kLanes;
    const Words* panel = product.panel + first * Fp32Panel::kNumUnits;
    Floats sums[kRows][kColumns] = {};
    if (!product.is_first) {
      for (int m = 0; m < kRows; ++m) {
        for (int v = 0; v < kColumns; ++v) {
          std::memcpy(&sums[m][v], y + m * product.y_stride + v * kLanes, sizeof(Floats));
        }
      }
    }
    for (int64_t u = 0; u < product.units; ++u) {
      Floats w[kColumns];
      for (int v = 0; v < kColumns; ++v) {
        std::memcpy(&w[v], panel + v * Fp32Panel::kNumUnits + u, sizeof(Floats));
      }
      for (int m = 0; m < kRows; ++m) {
        for (int v = 0; v < kColumns; ++v) sums[m][v] += w[v] * x[m * product.x_stride + u];
      }
    }
    for (int m = 0; m < kRows; ++m) {
      for (int v = 0; v < kColumns; ++v) {
        std::memcpy(y + m * product.y_stride + v * kLanes, &sums[m][v], sizeof(Floats));
      }
    }
  }
}

LATHE_BF16_TARGET void MultiplyPanelBf16(const PanelProduct& product) {
  int64_t row = 0;
  for (; row + kBlockRows <= product.num_rows; row += kBlockRows) {
    BlockBf16<kBlockRows>(product, row);
  }
  switch (product.num_rows - row) {
    case 1:
      return BlockBf16<1>(product, row);
    case 2:
      return BlockBf16<2>(product, row);
    case 3:
      return BlockBf16<3>(product, row);
    case 4:
      return BlockBf16<4>(product, row);
    case 5:
      return BlockBf16<5>(product, row);
    default:
      return;
  }
}

// Narrow enough for the 16 registers of AVX2; AVX-512 has room to spare.
LATHE_SIMD_CLONES
void MultiplyPanelFp32(const PanelProduct& product) {
  int64_t row = 0;
  for (; row + 4 <= product.num_rows; row += 4) BlockFp32<4, 1>(product, row);
  for (; row < product.num_rows; ++row) BlockFp32<1, 1>(product, row);
}

using Pack = void (*)(const WeightMatmulTask&, int64_t, int64_t, int64_t, Words*);
using Multiply = void (*)(const PanelProduct&);

// How panels of one product are packed and multiplied.
struct PanelRun {
  Pack pack;
  Multiply multiply;
  int64_t numbers_per_unit;
  int64_t inner;  // length of the sums
  size_t x_number_bytes;
};

void RunPanel(const WeightMatmulTask& task, const PanelRun& run, int64_t column, float* y,
              int64_t y_stride) {
  alignas(64) Words panel[kVectors * kPanelDepth];
  for (int64_t begin = 0; begin < run.inner; begin += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, run.inner - begin);
    run.pack(task, column, begin, depth, panel);
    run.multiply(
        {.x = static_cast<const char*>(task.x) + static_cast<size_t>(begin) * run.x_number_bytes,
         .x_stride = task.x_stride,
         .panel = panel,
         .units = (depth + run.numbers_per_unit - 1) / run.numbers_per_unit,
         .y = y,
         .y_stride = y_stride,
         .num_rows = task.num_rows,
         .is_first = begin == 0 && !task.accumulate});
  }
}

// The last panel may be narrower than kMatmulPanel: it goes through a buffer.
void RunNarrowPanel(const WeightMatmulTask& task, const PanelRun& run, int64_t column,
                    int64_t num_columns) {
  std::vector<float> buffer(static_cast<size_t>(task.num_rows * kMatmulPanel));
  const size_t row_bytes = static_cast<size_t>(num_columns) * sizeof(float);
  for (int64_t m = 0; task.accumulate && m < task.num_rows; ++m) {
    std::memcpy(&buffer[m * kMatmulPanel], task.y + m * task.y_stride + column, row_bytes);
  }
  RunPanel(task, run, column, buffer.data(), kMatmulPanel);
  for (int64_t m = 0; m < task.num_rows; ++m) {
    std::memcpy(task.y + m * task.y_stride + column, &buffer[m * kMatmulPanel], row_bytes);
  }
}

void RunPanels(const WeightMatmulTask& task, const PanelRun& run, int64_t num_columns,
               int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; ++p) {
    const int64_t column = p * kMatmulPanel;
    const int64_t width = std::min(kMatmulPanel, num_columns - column);
    if (width < kMatmulPanel) {
      RunNarrowPanel(task, run, column, width);
    } else {
      RunPanel(task, run, column, task.y + column, task.y_stride);
    }
  }
}

}  // namespace

bool CpuHasBf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq");
}

void MatmulTransposed(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                      int64_t end) {
  if (arithmetic == MatmulArithmetic::kBf16) {
    RunPanels(task, {PackTransposedBf16, MultiplyPanelBf16, 2, task.k, sizeof(uint16_t)}, task.n,
              begin, end);
  } else {
    RunPanels(task, {PackTransposedFp32, MultiplyPanelFp32, 1, task.k, sizeof(float)}, task.n,
              begin, end);
  }
}

void MatmulPlain(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                 int64_t end) {
  if (arithmetic == MatmulArithmetic::kBf16) {
    RunPanels(task, {PackPlainBf16, MultiplyPanelBf16, 2, task.n, sizeof(uint16_t)}, task.k, begin,
              end);
  } else {
    RunPanels(task, {PackPlainFp32, MultiplyPanelFp32, 1, task.n, sizeof(float)}, task.k, begin,
              end);
  }
}

LATHE_SIMD_CLONES
void RoundToBf16(const float* x, uint16_t* y, int64_t num_numbers) {
#pragma omp simd
  for (int64_t i = 0; i < num_numbers; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    // A NaN must not round to infinity.
    const uint32_t quiet = bits | 0x400000u;
    y[i] = static_cast<uint16_t>(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
  }
}

}  // namespace lathe::worker
