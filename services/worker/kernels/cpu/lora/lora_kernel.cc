#include "services/worker/kernels/cpu/lora/lora_kernel.h"

#include <algorithm>

#include "services/worker/kernels/cpu/vectors.h"

// Legend: m rows of activations, j factor rows, k inner and n outer index of a linear.
namespace lathe::worker {
namespace {

// Returns in lane i the sum of the lanes of rows[i], with the same tree for each row: adds lanes
// eight apart, then four, two and one apart. Each addition merges two vectors into one.
LATHE_INLINE Floats SumLanes(Floats (&rows)[kLanes]) {
  typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
  const auto halve = [&](int size, const Words& low, const Words& high) LATHE_INLINE_LAMBDA {
    for (int i = 0; i < size; ++i) {
      const Floats a = rows[i];
      const Floats b = rows[i + size];
      rows[i] = __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
    }
  };
  // The sum of row i ends in lane i.
  halve(8, Words{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
        Words{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
  halve(4, Words{0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27},
        Words{4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31});
  halve(2, Words{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29},
        Words{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
  halve(1, Words{0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30},
        Words{1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31});
  return rows[0];
}

// ---- dot products ----

// Dot products computed together: four rows times four factors keep sixteen vectors of sums.
constexpr int kDotRows = 4;
constexpr int kDotFactors = 4;
// Inner numbers per stretch. Four rows of it and four factors stay in the first-level cache for all
// factors of a tile. Fewer rows read each factor once, best in one piece.
constexpr int64_t kDotDepth = 512;
// Size of a tile, whose sums wait in memory between stretches: 64 KiB.
constexpr int64_t kTileRows = 32;
constexpr int64_t kTileFactors = 32;

struct DotSums {
  Floats sums[kDotRows * kDotFactors];
};

// sums += products over the inner numbers [begin, begin + size). With kFetches it prefetches the
// same numbers of the next rows, because a stretch is too short for hardware prediction.
template <int kRows, bool kFetches = false>
LATHE_INLINE void AddProducts(const LoraDotsTask& task, int64_t row, int64_t factor, int64_t begin,
                              int64_t size, DotSums& sums) {
  const float* x[kRows];
  const float* f[kDotFactors];
  for (int m = 0; m < kRows; ++m) x[m] = task.x + (row + m) * task.x_stride + begin;
  for (int j = 0; j < kDotFactors; ++j) {
    // Missing factors repeat the last one; their sums are dropped.
    f[j] = task.factors[std::min<int64_t>(factor + j, task.num_factors - 1)] + begin;
  }
  Floats s[kRows][kDotFactors];
  for (int m = 0; m < kRows; ++m) {
    for (int j = 0; j < kDotFactors; ++j) s[m][j] = sums.sums[m * kDotFactors + j];
  }
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    Floats v[kDotFactors];
    for (int j = 0; j < kDotFactors; ++j) v[j] = Load(f[j] + k);
    for (int m = 0; m < kRows; ++m) {
      const Floats u = Load(x[m] + k);
      if (kFetches) __builtin_prefetch(x[m] + kRows * task.x_stride + k);
      for (int j = 0; j < kDotFactors; ++j) s[m][j] += u * v[j];
    }
  }
  if (k < size) {
    Floats v[kDotFactors];
    for (int j = 0; j < kDotFactors; ++j) v[j] = LoadPart(f[j] + k, size - k);
    for (int m = 0; m < kRows; ++m) {
      const Floats u = LoadPart(x[m] + k, size - k);
      for (int j = 0; j < kDotFactors; ++j) s[m][j] += u * v[j];
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int j = 0; j < kDotFactors; ++j) sums.sums[m * kDotFactors + j] = s[m][j];
  }
}

template <int kRows>
LATHE_INLINE void FinishDots(const LoraDotsTask& task, int64_t row, int64_t factor, DotSums& sums) {
  alignas(64) float dots[kLanes];
  Store(dots, SumLanes(sums.sums) * task.scale);
  const int64_t num_factors = std::min<int64_t>(kDotFactors, task.num_factors - factor);
  for (int m = 0; m < kRows; ++m) {
    float* out = task.out + (row + m) * task.out_stride + factor;
    for (int64_t j = 0; j < num_factors; ++j) out[j] = dots[m * kDotFactors + j];
  }
}

// Computes rows [row, row + num_rows) times factors [factor, factor + num_factors), at most a tile.
LATHE_INLINE void DotTile(const LoraDotsTask& task, int64_t row, int64_t num_rows, int64_t factor,
                          int64_t num_factors) {
  const auto per_block = [&](const auto& run) LATHE_INLINE_LAMBDA {
    for (int64_t m = 0; m < num_rows; m += kDotRows) {
      for (int64_t j = 0; j < num_factors; j += kDotFactors) run(m, j);
    }
  };
  DotSums tile[kTileRows / kDotRows][kTileFactors / kDotFactors];
  per_block([&](int64_t m, int64_t j) LATHE_INLINE_LAMBDA {
    DotSums& sums = tile[m / kDotRows][j / kDotFactors];
    for (Floats& sum : sums.sums) sum = Floats{};
  });
  const int64_t depth = num_rows <= kDotRows ? task.width : kDotDepth;
  for (int64_t begin = 0; begin < task.width; begin += depth) {
    const int64_t size = std::min(depth, task.width - begin);
    per_block([&](int64_t m, int64_t j) LATHE_INLINE_LAMBDA {
      DotSums& sums = tile[m / kDotRows][j / kDotFactors];
      switch (std::min<int64_t>(kDotRows, num_rows - m)) {
        case 1:
          return AddProducts<1>(task, row + m, factor + j, begin, size, sums);
        case 2:
          return AddProducts<2>(task, row + m, factor + j, begin, size, sums);
        case 3:
          return AddProducts<3>(task, row + m, factor + j, begin, size, sums);
        default:
          if (j == 0) return AddProducts<4, true>(task, row + m, factor + j, begin, size, sums);
          return AddProducts<4>(task, row + m, factor + j, begin, size, sums);
      }
    });
  }
  per_block([&](int64_t m, int64_t j) LATHE_INLINE_LAMBDA {
    DotSums& sums = tile[m / kDotRows][j / kDotFactors];
    switch (std::min<int64_t>(kDotRows, num_rows - m)) {
      case 1:
        return FinishDots<1>(task, row + m, factor + j, sums);
      case 2:
        return FinishDots<2>(task, row + m, factor + j, sums);
      case 3:
        return FinishDots<3>(task, row + m, factor + j, sums);
      default:
        return FinishDots<4>(task, row + m, factor + j, sums);
    }
  });
}

// ---- sums of factor rows ----

// Numbers of factors that stay in the second-level cache while all rows use them.
constexpr int64_t kSumNumbers = 65536;
constexpr int kSumRows = 4;
constexpr int kSumVectors = 4;

template <int kRows, int kVectors>
LATHE_INLINE void SumBlock(const LoraSumsTask& task, int64_t row, int64_t column) {
  const float* c = task.c + row * task.c_stride;
  float* y = task.y + row * task.y_stride + column;
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[m][v] = Load(y + m * task.y_stride + v * kLanes);
      // Prefetches the next rows.
      if (kRows > 1) __builtin_prefetch(y + (kRows + m) * task.y_stride + v * kLanes, 1);
    }
  }
  for (int64_t j = 0; j < task.num_factors; ++j) {
    const float* factor = task.factors[j] + column;
    Floats f[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f[v] = Load(factor + v * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[m][v] += f[v] * c[m * task.c_stride + j];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(y + m * task.y_stride + v * kLanes, sums[m][v]);
  }
}

// Handles fewer columns than a vector has.
LATHE_INLINE void SumPart(const LoraSumsTask& task, int64_t row, int64_t column, int64_t size) {
  const float* c = task.c + row * task.c_stride;
  float* y = task.y + row * task.y_stride + column;
  Floats sum = LoadPart(y, size);
  for (int64_t j = 0; j < task.num_factors; ++j) {
    sum += LoadPart(task.factors[j] + column, size) * c[j];
  }
  StorePart(y, sum, size);
}

template <int kRows>
LATHE_INLINE void SumRows(const LoraSumsTask& task, int64_t row, int64_t begin, int64_t end) {
  int64_t n = begin;
  for (; n + kSumVectors * kLanes <= end; n += kSumVectors * kLanes) {
    SumBlock<kRows, kSumVectors>(task, row, n);
  }
  for (; n + kLanes <= end; n += kLanes) SumBlock<kRows, 1>(task, row, n);
  if (n == end) return;
  for (int m = 0; m < kRows; ++m) SumPart(task, row + m, n, end - n);
}

// ---- gradients ----

// Rows per strip of columns. All factors use the strip's cache lines, and sums are stored only once
// per this many multiply-adds.
constexpr int64_t kGradientRows = 64;
constexpr int kGradientFactors = 4;
constexpr int kGradientVectors = 4;

// With kFetches it prefetches the next strip, whose rows are pages apart, which hardware does not
// predict.
template <int kFactors, int kVectors, bool kFetches>
LATHE_INLINE void GradientBlock(const LoraGradientTask& task, int64_t begin_row, int64_t end_row,
                                int64_t factor, int64_t column) {
  Floats sums[kFactors][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kFactors; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[j][v] = Load(task.gradients[factor + j] + column + v * kLanes);
    }
  }
  for (int64_t m = begin_row; m < end_row; ++m) {
    const float* c = task.c + m * task.c_stride + factor;
    const float* x = task.v + m * task.v_stride + column;
    Floats f[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      f[v] = Load(x + v * kLanes);
      if (kFetches) __builtin_prefetch(x + (kVectors + v) * kLanes);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kFactors; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[j][v] += f[v] * c[j];
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kFactors; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Store(task.gradients[factor + j] + column + v * kLanes, sums[j][v]);
    }
  }
}

template <int kVectors>
LATHE_INLINE void GradientStrip(const LoraGradientTask& task, int64_t begin_row, int64_t end_row,
                                int64_t column) {
  int64_t j = 0;
  if (kGradientFactors <= task.num_factors) {
    GradientBlock<kGradientFactors, kVectors, true>(task, begin_row, end_row, j, column);
    j += kGradientFactors;
  }
  for (; j + kGradientFactors <= task.num_factors; j += kGradientFactors) {
    GradientBlock<kGradientFactors, kVectors, false>(task, begin_row, end_row, j, column);
  }
  for (; j < task.num_factors; ++j) {
    GradientBlock<1, kVectors, false>(task, begin_row, end_row, j, column);
  }
}

// Handles fewer columns than a vector has.
LATHE_INLINE void GradientPart(const LoraGradientTask& task, int64_t begin_row, int64_t end_row,
                               int64_t column, int64_t size) {
  for (int64_t j = 0; j < task.num_factors; ++j) {
    float* gradient = task.gradients[j] + column;
    Floats sum = LoadPart(gradient, size);
    for (int64_t m = begin_row; m < end_row; ++m) {
      sum += LoadPart(task.v + m * task.v_stride + column, size) * task.c[m * task.c_stride + j];
    }
    StorePart(gradient, sum, size);
  }
}

}  // namespace

LATHE_SIMD_CLONES
void LoraDots(const LoraDotsTask& task, int64_t begin_row, int64_t end_row) {
  for (int64_t row = begin_row; row < end_row; row += kTileRows) {
    for (int64_t factor = 0; factor < task.num_factors; factor += kTileFactors) {
      DotTile(task, row, std::min(kTileRows, end_row - row), factor,
              std::min(kTileFactors, task.num_factors - factor));
    }
  }
}

LATHE_SIMD_CLONES
void LoraSums(const LoraSumsTask& task, int64_t begin_row, int64_t end_row, int64_t begin_column,
              int64_t end_column) {
  constexpr int64_t kBlock = kSumVectors * kLanes;
  const int64_t stretch =
      std::max<int64_t>(1, kSumNumbers / std::max<int64_t>(1, task.num_factors) / kBlock) * kBlock;
  for (int64_t begin = begin_column; begin < end_column; begin += stretch) {
    const int64_t end = std::min(begin + stretch, end_column);
    int64_t row = begin_row;
    for (; row + kSumRows <= end_row; row += kSumRows) SumRows<kSumRows>(task, row, begin, end);
    for (; row < end_row; ++row) SumRows<1>(task, row, begin, end);
  }
}

LATHE_SIMD_CLONES
void AddLoraGradient(const LoraGradientTask& task, int64_t begin_column, int64_t end_column) {
  constexpr int64_t kBlock = kGradientVectors * kLanes;
  for (int64_t begin = 0; begin < task.num_rows; begin += kGradientRows) {
    const int64_t end = std::min(begin + kGradientRows, task.num_rows);
    int64_t n = begin_column;
    for (; n + kBlock <= end_column; n += kBlock) {
      GradientStrip<kGradientVectors>(task, begin, end, n);
    }
    for (; n + kLanes <= end_column; n += kLanes) GradientStrip<1>(task, begin, end, n);
    if (n < end_column) GradientPart(task, begin, end, n, end_column - n);
  }
}

}  // namespace lathe::worker
