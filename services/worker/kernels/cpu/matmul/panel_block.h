// Hot file, free of torch: adds the products with a part of a panel to up to six rows. Every sum is
// one chain of fused multiply-adds over the inner index in order, for any number of rows.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/kernels/cpu/vectors.h"

namespace lathe::worker {

inline constexpr int64_t kPanelVectors = kMatmulPanel / kLanes;

typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));  // bf16

#define LATHE_AVX512_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define LATHE_BF16_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

// True if products use AVX-512. Tests compile weight_matmul.cc again with false here.
#ifndef LATHE_CPU_HAS_AVX512
#define LATHE_CPU_HAS_AVX512 \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
#endif

// How the chains of multiply-adds of a block begin and end.
enum class Sums {
  kFirst,     // start at zero and become y
  kContinue,  // start at y, so that blocks after each other are one chain
  // Start at zero and are added to y. Onto a large y one after the other, each product would be
  // rounded to y's last bit.
  kAdd,
};

struct PanelBlock {
  const char* x;     // first row, at the part's first number
  int64_t x_stride;  // bytes
  const Words* panel;
  int64_t numbers;  // numbers of the inner index
  float* y;         // first row, at the panel's first column; whole panels wide
  int64_t y_stride;
  Sums sums;
  // Memory that is read next: so many cache lines are prefetched with each unit.
  const char* ahead;
  int64_t lines_ahead;
};

// Rows that share one read of the panel. Six times four vectors of sums, four vectors of the panel
// and one of x fit into the 32 registers of AVX-512.
inline constexpr int kBlockRows = 6;

LATHE_INLINE int32_t WordOf(const char* x, int64_t i) {
  int32_t word;
  std::memcpy(&word, x + 4 * i, sizeof(word));
  return word;
}

LATHE_INLINE const char* FetchAhead(const char* ahead, int64_t num_lines) {
  for (int64_t i = 0; i < num_lines; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
  return ahead;
}

// Multiply-add of a unit: words `w` of the panel times the word of x in `x`.
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

// Conversions of a panel's vector before its multiplication: none, or widening of the first or the
// second of each two bf16 numbers.
struct AsItIs {
  LATHE_AVX512_TARGET static LATHE_INLINE __m512i Of(const Words* w) { return (__m512i)*w; }
};

struct FirstWidened {
  LATHE_AVX512_TARGET static LATHE_INLINE __m512i Of(const Words* w) { return (__m512i)(*w << 16); }
};

struct SecondWidened {
  LATHE_AVX512_TARGET static LATHE_INLINE __m512i Of(const Words* w) {
    return (__m512i)(*w & static_cast<int32_t>(0xffff0000));
  }
};

// Macros, because a template cannot have its own target. LATHE_ADD_UNIT adds word `i` of each row
// times a unit of the panel: four vectors from `w` on.
#define LATHE_ADD_UNIT(MATH, AS)                                                                  \
  {                                                                                               \
    __m512i words[kPanelVectors];                                                                 \
    _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) { words[v] = AS::Of(w + v); } \
    _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                                     \
      const __m512i all = _mm512_set1_epi32(WordOf(block.x + m * block.x_stride, i));             \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {                           \
        sums[m][v] = MATH::Add(sums[m][v], all, words[v]);                                        \
      }                                                                                           \
    }                                                                                             \
  }

#define LATHE_DEFINE_BLOCK(NAME, TARGET, ADD_UNITS)                                   \
  template <int kRows>                                                                \
  TARGET void NAME(const PanelBlock& block) {                                         \
    __m512 sums[kRows][kPanelVectors];                                                \
    _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                         \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {               \
        sums[m][v] = block.sums == Sums::kContinue                                    \
                         ? _mm512_loadu_ps(block.y + m * block.y_stride + v * kLanes) \
                         : _mm512_setzero_ps();                                       \
      }                                                                               \
    }                                                                                 \
    const Words* w = block.panel;                                                     \
    const char* ahead = block.ahead;                                                  \
    ADD_UNITS                                                                         \
    _Pragma("GCC unroll 8") for (int m = 0; m < kRows; ++m) {                         \
      _Pragma("GCC unroll 4") for (int v = 0; v < kPanelVectors; ++v) {               \
        float* const y = block.y + m * block.y_stride + v * kLanes;                   \
        if (block.sums == Sums::kAdd) {                                               \
          sums[m][v] = _mm512_add_ps(sums[m][v], _mm512_loadu_ps(y));                 \
        }                                                                             \
        _mm512_storeu_ps(y, sums[m][v]);                                              \
      }                                                                               \
    }                                                                                 \
  }

// bf16 panel times bf16.
LATHE_DEFINE_BLOCK(
    BlockBf16, LATHE_BF16_TARGET,
    for (int64_t i = 0; i < (block.numbers + 1) / 2; ++i, w += kPanelVectors) {
      ahead = FetchAhead(ahead, block.lines_ahead);
      LATHE_ADD_UNIT(Bf16Dot, AsItIs)
    })

// fp32 panel times fp32.
LATHE_DEFINE_BLOCK(
    BlockFp32, LATHE_AVX512_TARGET,
    for (int64_t i = 0; i < block.numbers; ++i, w += kPanelVectors) {
      ahead = FetchAhead(ahead, block.lines_ahead);
      LATHE_ADD_UNIT(Fp32Product, AsItIs)
    })

// bf16 panel, widened in registers, times fp32.
LATHE_DEFINE_BLOCK(
    BlockWidened, LATHE_AVX512_TARGET,
    for (int64_t i = 0; i < block.numbers; ++i, w += kPanelVectors) {
      ahead = FetchAhead(ahead, block.lines_ahead);
      LATHE_ADD_UNIT(Fp32Product, FirstWidened)
      if (++i == block.numbers) break;
      LATHE_ADD_UNIT(Fp32Product, SecondWidened)
    })
#undef LATHE_DEFINE_BLOCK
#undef LATHE_ADD_UNIT

// Variant for CPUs without AVX-512. It uses AVX2's vector width, because the compiler splits wider
// vectors through memory. Six rows of two sums, two vectors of the panel and one of x fit into 16
// registers.
typedef float NarrowFloats __attribute__((vector_size(32)));
typedef int32_t NarrowWords __attribute__((vector_size(32)));
inline constexpr int64_t kNarrowLanes = 8;
// Units of a panel that all strips use before the next ones: 8 KiB.
inline constexpr int64_t kNarrowUnits = 32;

LATHE_INLINE NarrowFloats LoadNarrow(const float* x) {
  NarrowFloats v;
  std::memcpy(&v, x, sizeof(v));
  return v;
}

LATHE_INLINE void StoreNarrow(const NarrowFloats& v, float* x) { std::memcpy(x, &v, sizeof(v)); }

// Columns of a panel that are multiplied together, and the part of the inner index. Sums of a part
// that is not the last are kept in `kept` [rows, kMatmulPanel].
struct Strip {
  int64_t column;
  int64_t first;
  int64_t end;
  float* kept;
};

template <int kRows, int kVectors, bool kIsBf16>
LATHE_INLINE void MultiplyStrip(const PanelBlock& block, const Strip& strip) {
  constexpr int64_t kColumns = kVectors * kNarrowLanes;
  float* const y = block.y + strip.column;
  float* const kept = strip.kept + strip.column;
  const bool is_chained = strip.first > 0 || block.sums == Sums::kContinue;
  NarrowFloats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* const from = strip.first > 0 ? kept + m * kMatmulPanel : y + m * block.y_stride;
      sums[m][v] = is_chained ? LoadNarrow(from + v * kNarrowLanes) : NarrowFloats{};
    }
  }
  const auto add = [&](const auto& word, int64_t i) LATHE_INLINE_LAMBDA {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      float number;
      std::memcpy(&number, block.x + m * block.x_stride + 4 * i, sizeof(number));
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[m][v] += (NarrowFloats)word(v) * number;
    }
  };
  const int64_t first_unit = kIsBf16 ? strip.first / 2 : strip.first;
  const float* unit =
      reinterpret_cast<const float*>(block.panel) + first_unit * kMatmulPanel + strip.column;
  for (int64_t i = strip.first; i < strip.end; ++i, unit += kMatmulPanel) {
    if (kColumns < kMatmulPanel) {
      FetchAhead(reinterpret_cast<const char*>(unit + kNarrowUnits * kMatmulPanel),
                 kColumns / kLanes);
    }
    const auto load = [unit](int v) LATHE_INLINE_LAMBDA {
      return (NarrowWords)LoadNarrow(unit + v * kNarrowLanes);
    };
    if constexpr (kIsBf16) {
      add([load](int v) LATHE_INLINE_LAMBDA { return load(v) << 16; }, i);
      if (++i == strip.end) break;
      constexpr auto kUpper = static_cast<int32_t>(0xffff0000);
      add([load](int v) LATHE_INLINE_LAMBDA { return load(v) & kUpper; }, i);
    } else {
      add(load, i);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (strip.end < block.numbers) {
        StoreNarrow(sums[m][v], kept + m * kMatmulPanel + v * kNarrowLanes);
        continue;
      }
      float* const to = y + m * block.y_stride + v * kNarrowLanes;
      if (block.sums == Sums::kAdd) sums[m][v] += LoadNarrow(to);
      StoreNarrow(sums[m][v], to);
    }
  }
}

// Memory is read from the begin to the end: strips after the first one find their part of the panel
// in the first-level cache.
template <int kRows, bool kIsBf16>
LATHE_INLINE void BlockNarrow(const PanelBlock& block) {
  // Few rows take more columns at a time, because each chain of sums waits for itself.
  constexpr int kVectors = kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
  constexpr int64_t kColumns = kVectors * kNarrowLanes;
  alignas(32) float kept[kRows * kMatmulPanel];
  const int64_t most = kColumns == kMatmulPanel ? block.numbers : kNarrowUnits * (kIsBf16 ? 2 : 1);
  for (int64_t first = 0; first < block.numbers; first += most) {
    const int64_t end = std::min(first + most, block.numbers);
    for (int64_t column = 0; column < kMatmulPanel; column += kColumns) {
      MultiplyStrip<kRows, kVectors, kIsBf16>(block, {column, first, end, kept});
    }
  }
}

template <int kRows>
LATHE_INLINE void BlockNarrowFp32(const PanelBlock& block) {
  BlockNarrow<kRows, /*kIsBf16=*/false>(block);
}

template <int kRows>
LATHE_INLINE void BlockNarrowWidened(const PanelBlock& block) {
  BlockNarrow<kRows, /*kIsBf16=*/true>(block);
}

}  // namespace lathe::worker
