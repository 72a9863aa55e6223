// Hot file, free of torch: products of activations with a frozen matrix on a CPU. Panels of the
// matrix are read in their stored form, each part of one once for all rows.
//
// Each output is one chain of fused multiply-adds (kBf16: two-element dot products) over the inner
// index in order, in fp32. Its bits depend only on its own row of x, not on other rows, the row's
// place or other threads.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"

namespace lathe::worker {

enum class MatmulArithmetic {
  kFp32,  // a bf16 matrix is widened to fp32
  kBf16,  // x rounded to bf16, products summed in fp32; bf16 matrices only; needs CpuHasBf16()
};

// Returns true if this CPU multiplies bf16 (AVX512-BF16).
bool CpuHasBf16();

struct WeightMatmulTask {
  WeightPanels weight;  // [N, K]
  const void* x;  // rows of float (kFp32), or of bf16 padded to an even length with zero (kBf16)
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int64_t num_rows;
  bool accumulate;  // y += instead of y =
};

// y [M, N] = x [M, K] W^T, for panels [begin, end) of N.
void MatmulTransposed(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                      int64_t end);

// y [M, K] = x [M, N] W, for panels [begin, end) of K.
void MatmulPlain(const WeightMatmulTask& task, MatmulArithmetic arithmetic, int64_t begin,
                 int64_t end);

// Rounds `x` [num_numbers] to bf16, to nearest even; NaN stays NaN. Subnormal fp32 numbers become
// zero, as in the products of kBf16. Requires CpuHasBf16().
void RoundToBf16(const float* x, uint16_t* y, int64_t num_numbers);

}  // namespace lathe::worker
