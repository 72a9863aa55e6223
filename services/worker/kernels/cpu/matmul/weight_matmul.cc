#include "services/worker/kernels/cpu/matmul/weight_matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/worker/kernels/cpu/matmul/panel_block.h"
#include "services/worker/kernels/cpu/matmul/panel_transpose.h"

namespace lathe::worker {
namespace {

// Units of a panel that all rows use before the next ones: 128 KiB, which stay in the second-level
// cache.
constexpr int64_t kPartUnits = 512;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kLinesPerUnit = kMatmulPanel * kUnitBytes / kLineBytes;

using Multiply = void (*)(const PanelBlock&, int64_t);

#define LATHE_DEFINE_MULTIPLY(NAME, TARGET, BLOCK)          \
  TARGET void NAME(const PanelBlock& block, int64_t rows) { \
    switch (rows) {                                         \
      case 1:                                               \
        return BLOCK<1>(block);                             \
      case 2:                                               \
        return BLOCK<2>(block);                             \
      case 3:                                               \
        return BLOCK<3>(block);                             \
      case 4:                                               \
        return BLOCK<4>(block);                             \
      case 5:                                               \
        return BLOCK<5>(block);                             \
      default:                                              \
        return BLOCK<kBlockRows>(block);                    \
    }                                                       \
  }
LATHE_DEFINE_MULTIPLY(MultiplyBf16, LATHE_BF16_TARGET, BlockBf16)
LATHE_DEFINE_MULTIPLY(MultiplyFp32, LATHE_AVX512_TARGET, BlockFp32)
LATHE_DEFINE_MULTIPLY(MultiplyWidened, LATHE_AVX512_TARGET, BlockWidened)
LATHE_DEFINE_MULTIPLY(MultiplyNarrowFp32, LATHE_SIMD_CLONES, BlockNarrowFp32)
LATHE_DEFINE_MULTIPLY(MultiplyNarrowWidened, LATHE_SIMD_CLONES, BlockNarrowWidened)
#undef LATHE_DEFINE_MULTIPLY

Multiply ChooseMultiply(bool is_bf16, MatmulArithmetic arithmetic) {
  if (arithmetic == MatmulArithmetic::kBf16) return MultiplyBf16;
  if (LATHE_CPU_HAS_AVX512) return is_bf16 ? MultiplyWidened : MultiplyFp32;
  return is_bf16 ? MultiplyNarrowWidened : MultiplyNarrowFp32;
}

// Settings of one product with outputs [M, num_columns].
struct Run {
  const WeightMatmulTask& task;
  Multiply multiply;
  int64_t x_bytes;  // per number
  int64_t num_columns;
  Sums later_sums;  // of blocks whose y has a value
};

// A part of a panel: numbers [first, first + numbers) of the inner index.
struct Part {
  int64_t column;  // first column of the panel
  int64_t first;
  int64_t numbers;
  const Words* words;
  const char* next;  // the part after this one; null if none
};

// Multiplies a block of rows by the last panel, which may be narrower than the others.
void MultiplyLastPanel(const Run& run, PanelBlock block, int64_t rows, int64_t width) {
  alignas(64) float buffer[kBlockRows * kMatmulPanel] = {};
  float* const y = std::exchange(block.y, buffer);
  const int64_t stride = std::exchange(block.y_stride, kMatmulPanel);
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
  for (int64_t m = 0; block.sums != Sums::kFirst && m < rows; ++m) {
    std::memcpy(buffer + m * kMatmulPanel, y + m * stride, row_bytes);
  }
  run.multiply(block, rows);
  for (int64_t m = 0; m < rows; ++m) {
    std::memcpy(y + m * stride, buffer + m * kMatmulPanel, row_bytes);
  }
}

void MultiplyPart(const Run& run, const Part& part) {
  const WeightMatmulTask& task = run.task;
  const int64_t width = std::min(kMatmulPanel, run.num_columns - part.column);
  const int64_t num_units =
      (part.numbers + task.weight.NumbersPerUnit() - 1) / task.weight.NumbersPerUnit();
  const int64_t num_blocks = (task.num_rows + kBlockRows - 1) / kBlockRows;
  // The first blocks prefetch the next part's lines; otherwise memory would idle while they
  // multiply.
  const int64_t lines = (kLinesPerUnit + num_blocks - 1) / num_blocks;
  int64_t row = 0;
  for (int64_t b = 0; b < num_blocks; ++b) {
    const int64_t rows = (task.num_rows - row + num_blocks - b - 1) / (num_blocks - b);
    const bool fetches = part.next != nullptr && b * lines < kLinesPerUnit;
    const PanelBlock block = {
        .x = static_cast<const char*>(task.x) + (row * task.x_stride + part.first) * run.x_bytes,
        .x_stride = task.x_stride * run.x_bytes,
        .panel = part.words,
        .numbers = part.numbers,
        .y = task.y + row * task.y_stride + part.column,
        .y_stride = task.y_stride,
        .sums = part.first == 0 && !task.accumulate ? Sums::kFirst : run.later_sums,
        .ahead = fetches ? part.next + b * lines * num_units * kLineBytes : nullptr,
        .lines_ahead = fetches ? lines : 0};
    if (width == kMatmulPanel) {
      run.multiply(block, rows);
    } else {
      MultiplyLastPanel(run, block, rows, width);
    }
    row += rows;
  }
}

int64_t BytesPerNumber(MatmulArithmetic arithmetic) {
  return arithmetic == MatmulArithmetic::kBf16 ? sizeof(uint16_t) : sizeof(float);
}

LATHE_SIMD_CLONES
void TransposeBf16(const WeightPanels& panels, int64_t column, int64_t begin, int64_t depth,
                   Words* transposed) {
  TransposePanel</*kIsBf16=*/true>(panels, column, begin, depth, transposed);
}

LATHE_SIMD_CLONES
void TransposeFp32(const WeightPanels& panels, int64_t column, int64_t begin, int64_t depth,
                   Words* transposed) {
  TransposePanel</*kIsBf16=*/false>(panels, column, begin, depth, transposed);
}

}  // namespace

bool CpuHasBf16() {
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq");
}

// Sums over parts of the inner index, so that the order of sums does not depend on the number of
// rows.
void MatmulTransposed(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                      int64_t end) {
  const WeightPanels& weight = task.weight;
  const Run run = {.task = task,
                   .multiply = ChooseMultiply(weight.is_bf16, arithmetic),
                   .x_bytes = BytesPerNumber(arithmetic),
                   .num_columns = weight.n,
                   .later_sums = Sums::kAdd};
  const int64_t most = kPartUnits * weight.NumbersPerUnit();
  const auto at = [&](int64_t panel, int64_t first) {
    return static_cast<const char*>(weight.data) + panel * weight.PanelBytes() +
           first / weight.NumbersPerUnit() * kMatmulPanel * kUnitBytes;
  };
  const auto multiply = [&](int64_t panel, int64_t first, const char* next) {
    MultiplyPart(run, {.column = panel * kMatmulPanel,
                       .first = first,
                       .numbers = std::min(most, weight.k - first),
                       .words = reinterpret_cast<const Words*>(at(panel, first)),
                       .next = next});
  };
  if (task.num_rows <= kBlockRows) {
    // One block of rows uses each panel once, and reads it from the begin to the end.
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t first = 0; first < weight.k; first += most) multiply(p, first, nullptr);
    }
    return;
  }
  // A part of x stays in cache for all panels.
  for (int64_t first = 0; first < weight.k; first += most) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t next_first = p + 1 < end ? first : first + most;
      const int64_t next_panel = p + 1 < end ? p + 1 : begin;
      multiply(p, first, next_first < weight.k ? at(next_panel, next_first) : nullptr);
    }
  }
}

// Parts are one chain, so that a matrix may also be multiplied in pieces of its rows.
void MatmulPlain(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                 int64_t end) {
  const WeightPanels& weight = task.weight;
  const Run run = {.task = task,
                   .multiply = ChooseMultiply(weight.is_bf16, arithmetic),
                   .x_bytes = BytesPerNumber(arithmetic),
                   .num_columns = weight.k,
                   .later_sums = Sums::kContinue};
  const auto transpose = weight.is_bf16 ? TransposeBf16 : TransposeFp32;
  const int64_t most = kPartUnits * weight.NumbersPerUnit();
  alignas(64) Words transposed[kPanelVectors * kPartUnits];
  for (int64_t first = 0; first < weight.n; first += most) {
    const int64_t numbers = std::min(most, weight.n - first);
    for (int64_t p = begin; p < end; ++p) {
      transpose(weight, p * kMatmulPanel, first, numbers, transposed);
      MultiplyPart(run, {.column = p * kMatmulPanel,
                         .first = first,
                         .numbers = numbers,
                         .words = transposed,
                         .next = nullptr});
    }
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
