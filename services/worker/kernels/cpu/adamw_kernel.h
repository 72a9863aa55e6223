// Hot file, free of torch: AdamW over flat fp32 buffers, on a CPU. An element's bits depend on its
// own numbers alone, a sum's on where its range begins and ends.
#pragma once

#include <cstdint>

namespace lathe::worker {

// Sums are made of ranges of this many elements, whoever computes them.
inline constexpr int64_t kAdamWBlock = 16384;

// Of x [n], in fp64: large finite numbers do not overflow when squared.
double SumOfSquares(const float* x, int64_t n);

// With g = gradient · gradient_scale:
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

// One step of the elements [begin, end); their gradient is zero afterwards. Returns the sum of
// squares of the changes of the parameters.
double AdamWRange(const AdamWTask& task, int64_t begin, int64_t end);

}  // namespace lathe::worker
