#include "services/worker/kernels/cpu/weight_matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "services/worker/kernels/cpu/panel_pack.h"
#include "services/worker/kernels/cpu/vectors.h"

namespace lathe::worker {
namespace {

// Units of one panel: 128 KiB, so that the panel stays in the second-level cache while the rows
// pass by.
constexpr int64_t kPanelUnits = 512;

#define LATHE_AVX512_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define LATHE_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

LATHE_SIMD_CLONES
void PackTransposedBf16(const WeightMatmulTask& task, int64_t row, int64_t begin, int64_t depth,
                        Words* panel) {
  PackTransposed<Bf16AsBf16>(task, row, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackTransposedWidened(const WeightMatmulTask& task, int64_t row, int64_t begin, int64_t depth,
                           Words* panel) {
  PackTransposed<Bf16AsFp32>(task, row, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackTransposedFp32(const WeightMatmulTask& task, int64_t row, int64_t begin, int64_t depth,
                        Words* panel) {
  PackTransposed<Fp32AsFp32>(task, row, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackPlainBf16(const WeightMatmulTask& task, int64_t column, int64_t begin, int64_t depth,
                   Words* panel) {
  PackPlain<Bf16AsBf16>(task, column, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackPlainWidened(const WeightMatmulTask& task, int64_t column, int64_t begin, int64_t depth,
                      Words* panel) {
  PackPlain<Bf16AsFp32>(task, column, begin, depth, panel);
}

LATHE_SIMD_CLONES
void PackPlainFp32(const WeightMatmulTask& task, int64_t column, int64_t begin, int64_t depth,
                   Words* panel) {
  PackPlain<Fp32AsFp32>(task, column, begin, depth, panel);
}

// What one packed panel adds to all rows.
struct PanelProduct {
  const char* x;     // at the panel's first unit
  int64_t x_stride;  // bytes
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

// The multiply-add of a unit: of words `w` of the panel with the word of x at `x`.
struct Bf16Dot {
  LATHE_BF16_TARGET static LATHE_INLINE __m512 Add(const __m512& sum, const __m512i& x,
                                                   const __m512i& w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
  }
};

struct Fp32Product {
  LATHE_AVX512_TARGET static LATHE_INLINE __m512 Add(const __m512& sum, const __m512i& x,
                                                     const __m512i& w) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), sum);
  }
};

#define LATHE_DEFINE_BLOCK(NAME, TARGET, MATH)                                                  \
  template <int kRows>                                                                          \
  TARGET void NAME(const PanelProduct& product, int64_t row) {                                  \
    const char* x = product.x + row * product.x_stride;                                         \
    float* y = product.y + row * product.y_stride;                                              \
    __m512 sums[kRows][kPanelVectors];                                                          \
    _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                                   \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {                         \
        sums[m][v] = product.is_first ? _mm512_setzero_ps()                                     \
                                      : _mm512_loadu_ps(y + m * product.y_stride + v * kLanes); \
      }                                                                                         \
    }                                                                                           \
    for (int64_t u = 0; u < product.units; ++u) {                                               \
      __m512i w[kPanelVectors];                                                                 \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {                         \
        w[v] = _mm512_load_si512(product.panel + u * kPanelVectors + v);                        \
      }                                                                                         \
      _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                                 \
        int32_t word;                                                                           \
        std::memcpy(&word, x + m * product.x_stride + 4 * u, sizeof(word));                     \
        const __m512i all = _mm512_set1_epi32(word);                                            \
        _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {                       \
          sums[m][v] = MATH::Add(sums[m][v], all, w[v]);                                        \
        }                                                                                       \
      }                                                                                         \
    }                                                                                           \
    _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                                   \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {                         \
        _mm512_storeu_ps(y + m * product.y_stride + v * kLanes, sums[m][v]);                    \
      }                                                                                         \
    }                                                                                           \
  }
LATHE_DEFINE_BLOCK(BlockBf16, LATHE_BF16_TARGET, Bf16Dot)
LATHE_DEFINE_BLOCK(BlockFp32, LATHE_AVX512_TARGET, Fp32Product)
#undef LATHE_DEFINE_BLOCK

// For CPUs without AVX-512: one vector of sums at a time, which is two registers of AVX2.
template <int kRows>
LATHE_INLINE void BlockFp32Narrow(const PanelProduct& product, int64_t row) {
  const char* x = product.x + row * product.x_stride;
  for (int64_t v = 0; v < kPanelVectors; ++v) {
    float* y = product.y + row * product.y_stride + v * kLanes;
    Floats sums[kRows] = {};
    if (!product.is_first) {
      for (int m = 0; m < kRows; ++m) std::memcpy(&sums[m], y + m * product.y_stride, 64);
    }
    for (int64_t u = 0; u < product.units; ++u) {
      Floats w;
      std::memcpy(&w, product.panel + u * kPanelVectors + v, sizeof(w));
      for (int m = 0; m < kRows; ++m) {
        float number;
        std::memcpy(&number, x + m * product.x_stride + 4 * u, sizeof(number));
        sums[m] += w * number;
      }
    }
    for (int m = 0; m < kRows; ++m) std::memcpy(y + m * product.y_stride, &sums[m], 64);
  }
}

#define LATHE_DEFINE_MULTIPLY(NAME, TARGET, BLOCK)                    \
  TARGET void NAME(const PanelProduct& product) {                     \
    int64_t row = 0;                                                  \
    for (; row + kBlockRows <= product.num_rows; row += kBlockRows) { \
      BLOCK<kBlockRows>(product, row);                                \
    }                                                                 \
    switch (product.num_rows - row) {                                 \
      case 1:                                                         \
        return BLOCK<1>(product, row);                                \
      case 2:                                                         \
        return BLOCK<2>(product, row);                                \
      case 3:                                                         \
        return BLOCK<3>(product, row);                                \
      case 4:                                                         \
        return BLOCK<4>(product, row);                                \
      case 5:                                                         \
        return BLOCK<5>(product, row);                                \
      default:                                                        \
        return;                                                       \
    }                                                                 \
  }
LATHE_DEFINE_MULTIPLY(MultiplyPanelBf16, LATHE_BF16_TARGET, BlockBf16)
LATHE_DEFINE_MULTIPLY(MultiplyPanelFp32, LATHE_AVX512_TARGET, BlockFp32)
LATHE_DEFINE_MULTIPLY(MultiplyPanelNarrow, LATHE_SIMD_CLONES, BlockFp32Narrow)
#undef LATHE_DEFINE_MULTIPLY

using Pack = void (*)(const WeightMatmulTask&, int64_t, int64_t, int64_t, Words*);
using Multiply = void (*)(const PanelProduct&);

// How one product goes: outputs [M, num_columns], sums of `inner` numbers.
struct PanelRun {
  Pack pack;
  Multiply multiply;
  int64_t numbers_per_unit;
  int64_t inner;
  int64_t num_columns;
};

Multiply MultiplyFp32() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
             ? MultiplyPanelFp32
             : MultiplyPanelNarrow;
}

// One panel; the last one may be narrower than kMatmulPanel and goes through a buffer.
void RunPanel(const WeightMatmulTask& task, const PanelRun& run, PanelProduct product,
              int64_t column) {
  const int64_t width = std::min(kMatmulPanel, run.num_columns - column);
  product.y = task.y + column;
  product.y_stride = task.y_stride;
  if (width == kMatmulPanel) return run.multiply(product);
  std::vector<float> buffer(static_cast<size_t>(task.num_rows * kMatmulPanel));
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t m = 0; !product.is_first && m < task.num_rows; ++m) {
    std::memcpy(&buffer[m * kMatmulPanel], task.y + m * task.y_stride + column, row_bytes);
  }
  product.y = buffer.data();
  product.y_stride = kMatmulPanel;
  run.multiply(product);
  for (int64_t m = 0; m < task.num_rows; ++m) {
    std::memcpy(task.y + m * task.y_stride + column, &buffer[m * kMatmulPanel], row_bytes);
  }
}

// Long sums are cut outside, panels inside: a part of x stays near while all panels use it.
void RunPanels(const WeightMatmulTask& task, const PanelRun& run, int64_t begin, int64_t end) {
  alignas(64) Words panel[kPanelVectors * kPanelUnits];
  const int64_t number_bytes = 4 / run.numbers_per_unit;
  const int64_t most = kPanelUnits * run.numbers_per_unit;
  for (int64_t first = 0; first < run.inner; first += most) {
    const int64_t depth = std::min(most, run.inner - first);
    for (int64_t p = begin; p < end; ++p) {
      run.pack(task, p * kMatmulPanel, first, depth, panel);
      RunPanel(task, run,
               {.x = static_cast<const char*>(task.x) + first * number_bytes,
                .x_stride = task.x_stride * number_bytes,
                .panel = panel,
                .units = (depth + run.numbers_per_unit - 1) / run.numbers_per_unit,
                .num_rows = task.num_rows,
                .is_first = first == 0 && !task.accumulate},
               p * kMatmulPanel);
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
    RunPanels(task, {PackTransposedBf16, MultiplyPanelBf16, 2, task.k, task.n}, begin, end);
  } else {
    RunPanels(task,
              {task.is_bf16 ? PackTransposedWidened : PackTransposedFp32, MultiplyFp32(), 1, task.k,
               task.n},
              begin, end);
  }
}

void MatmulPlain(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                 int64_t end) {
  if (arithmetic == MatmulArithmetic::kBf16) {
    RunPanels(task, {PackPlainBf16, MultiplyPanelBf16, 2, task.n, task.k}, begin, end);
  } else {
    RunPanels(task,
              {task.is_bf16 ? PackPlainWidened : PackPlainFp32, MultiplyFp32(), 1, task.n, task.k},
              begin, end);
  }
}

LATHE_BF16_TARGET
void RoundToBf16(const float* x, uint16_t* y, int64_t num_numbers) {
  constexpr int64_t kStep = 2 * kLanes;
  int64_t i = 0;
  for (; i + kStep <= num_numbers; i += kStep) {
    const __m512bh both =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + kLanes), _mm512_loadu_ps(x + i));
    std::memcpy(y + i, &both, sizeof(both));
  }
  for (; i < num_numbers; i += kLanes) {
    const int64_t size = std::min(kLanes, num_numbers - i);
    const auto mask = static_cast<__mmask16>((1u << size) - 1);
    const __m256bh part = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
    _mm256_mask_storeu_epi16(y + i, mask, (__m256i)part);
  }
}

}  // namespace lathe::worker
