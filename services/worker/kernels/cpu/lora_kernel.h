// Hot file, free of torch: products of activation rows with the factors of LoRA adapters, fp32, on
// a CPU. A factor row is one row of A, or one column of B laid out as a row: `rank` long vectors,
// each as wide as the linear's input or output.
//
// Bits of a result depend on its own row (its own factor element) alone: a dot product is sixteen
// interleaved chains of multiply-adds over the inner index and one tree over them, everything else
// is one chain in order. How many rows there are, where they lie, which columns a call covers and
// who else works on the product change nothing.
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

// y[m, n] += sum_j c[m, j] factors[j][n], one chain over j that starts with y.
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

// gradients[j][n] += sum_m c[m, j] v[m, n], one chain over the rows m in order that starts with
// what is there: rows [0, a) and then [a, b) give the bits of [0, b).
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
