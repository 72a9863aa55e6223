// Hot file, free of torch: AdamW over flat fp32 buffers on a CPU. An element's bits depend only on
// its own numbers; a sum's bits also on where its range begins and ends.
#pragma once

#include <cstdint>

namespace lathe::worker {

// Number of elements per sum, independent of the threads.
inline constexpr int64_t kAdamWBlock = 16384;

// Returns the sum of squares of x [n] in fp64, so that large finite numbers do not overflow.
double SumOfSquares(const float* x, int64_t n);

// One AdamW step, with g = gradient · gradient_scale:
//   m += (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g^2
//   new parameter = parameter · decay - step_size · m / (sqrt(v) · inverse_root + eps)
struct AdamWTask {
  const float* parameters;
  float* new_parameters;  // may be `parameters`
  float* gradient;
  float* exp_avg;     // m
  float* exp_avg_sq;  // v
  float gradient_scale;
  float beta1_complement;  // 1 - beta1
  float beta2;
  float beta2_complement;
  float decay;         // 1 - learning rate · weight decay
  float step_size;     // learning rate / (1 - beta1^t)
  float inverse_root;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

// Updates the elements [begin, end) and zeroes their gradient. Returns the sum of squares of the
// parameters' changes.
double AdamWRange(const AdamWTask& task, int64_t begin, int64_t end);

}  // namespace lathe::worker
