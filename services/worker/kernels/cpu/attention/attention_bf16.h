// bf16 products with fp32 sums (AVX512-BF16). Hot file, free of torch: include it where that is the
// target.
#pragma once

#include <immintrin.h>

#include "services/worker/kernels/cpu/attention/attention_arithmetic.h"

namespace lathe::worker::attention {

// Elements are words of two numbers, the first in the low half. The scale goes into results, so
// that operands are rounded as they are.
struct Bf16 {
  using Element = int32_t;
  using Elements = Words;
  using Sums = Lanes;
  static constexpr int kWidth = kLanes;
  static constexpr int kVectors = 4;
  static constexpr int64_t kNumbers = 2;

  static LATHE_INLINE void AddProduct(int32_t a, const Words& b, Lanes& sums) {
    sums = (Lanes)_mm512_dpbf16_ps((__m512)sums, (__m512bh)(Words{} + a), (__m512bh)b);
  }

  // Rounds 32 numbers to nearest even.
  static LATHE_INLINE Words Along(const Lanes (&numbers)[kNumbers]) {
    return (Words)_mm512_cvtne2ps_pbh((__m512)numbers[1], (__m512)numbers[0]);
  }

  // The same, with number i of both vectors in word i.
  static LATHE_INLINE Words Across(const Lanes (&numbers)[kNumbers]) {
    typedef int16_t Halves __attribute__((vector_size(4 * kLanes)));
    constexpr Halves kZip = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                             8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (Words)__builtin_shuffle((Halves)Along(numbers), kZip);
  }

  static LATHE_INLINE Scales ScalesOf(float scale) {
    return {.query = 1.0f, .score = scale * kLog2E, .key = 1.0f, .dq = scale, .dk = scale};
  }
};

}  // namespace lathe::worker::attention
