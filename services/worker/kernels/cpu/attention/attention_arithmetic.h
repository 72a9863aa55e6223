// Arithmetics of the attention kernels: fp32; attention_bf16.h has bf16. An arithmetic says how
// factors are stored, scaled and multiplied. Sums are fp32.
//
// An element of a factor holds kNumbers numbers that are neighbours along the inner index of a
// product: in a head, or the same number of neighbouring keys or rows. Elements have absolute
// positions: element i holds the numbers, keys or rows from i * kNumbers on. So each sum is one
// chain in the order of the inner index, and its bits do not depend on the tile's shape. An
// unwanted neighbour gets a factor of zero.
#pragma once

#include "services/worker/kernels/cpu/attention/attention_vectors.h"

namespace lathe::worker::attention {

// Factors that put the scale, and log2(e) for powers of two, into operands or results.
struct Scales {
  float query;  // of queries before products
  float score;  // of scores
  float key;    // of keys in the products for dq
  float dq;     // of results
  float dk;
};

// fp32 with vectors of `width` numbers and `vectors` of them per row of a tile. The scale goes into
// operands, once for all blocks.
template <int width, int vectors>
struct Fp32 {
  using Element = float;
  typedef float Elements __attribute__((vector_size(sizeof(float) * width)));
  using Sums = Elements;
  static constexpr int kWidth = width;
  static constexpr int kVectors = vectors;
  static constexpr int64_t kNumbers = 1;

  static LATHE_INLINE void AddProduct(float a, const Elements& b, Sums& sums) { sums += b * a; }

  // Return a vector of elements: of the neighbouring numbers in all vectors, or of one number of
  // each.
  template <typename V>
  static LATHE_INLINE V Along(const V (&numbers)[kNumbers]) {
    return numbers[0];
  }
  static LATHE_INLINE Lanes Across(const Lanes (&numbers)[kNumbers]) { return numbers[0]; }

  static LATHE_INLINE Scales ScalesOf(float scale) {
    return {.query = scale * kLog2E, .score = 1.0f, .key = scale, .dq = 1.0f, .dk = kLn2};
  }
};

}  // namespace lathe::worker::attention
