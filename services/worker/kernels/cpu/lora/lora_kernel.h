// Hot file, free of torch: fp32 products of activation rows with the factors of LoRA adapters, on a
// CPU. A factor row is one row of A, or one column of B stored as a row. There are `rank` of them,
// each as wide as the linear's input or output.
//
// The bits of a result depend only on its own row (or its own factor element). A dot product is
// sixteen interleaved chains of multiply-adds over the inner index, added in one tree. Everything
// else is one chain in order. So bits do not depend on the number and places of rows, the columns
// of a call, or other threads.
#pragma once

#include <cstdint>

namespace lathe::worker {

// out[m, j] = scale * sum_k x[m, k] factors[j][k]
struct LoraDotsTask {
  const float* x;
  int64_t x_stride;
  int64_t width;
  const float* const* factors;  // [num_factors] rows of `width`
  int64_t num_factors;
  float scale;
  float* out;
  int64_t out_stride;
};
void LoraDots(const LoraDotsTask& task, int64_t begin_row, int64_t end_row);

// y[m, n] += sum_j c[m, j] factors[j][n], as one chain over j that starts with y.
struct LoraSumsTask {
  const float* c;
  int64_t c_stride;
  const float* const* factors;
  int64_t num_factors;
  float* y;
  int64_t y_stride;
};
void LoraSums(const LoraSumsTask& task, int64_t begin_row, int64_t end_row, int64_t begin_column,
              int64_t end_column);

// gradients[j][n] += sum_m c[m, j] v[m, n], as one chain over the rows m in order that starts with
// the old value. So rows [0, a) and then [a, b) give the bits of [0, b).
struct LoraGradientTask {
  const float* c;
  int64_t c_stride;
  const float* v;
  int64_t v_stride;
  int64_t num_rows;
  float* const* gradients;  // [num_factors]
  int64_t num_factors;
};
void AddLoraGradient(const LoraGradientTask& task, int64_t begin_column, int64_t end_column);

}  // namespace lathe::worker
