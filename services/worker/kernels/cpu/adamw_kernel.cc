#include "services/worker/kernels/cpu/adamw_kernel.h"

#include <cmath>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {
namespace {

constexpr int64_t kLanes = 32;

// Adds the lanes in a fixed order.
LATHE_INLINE double Total(const double (&lanes)[kLanes]) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace

LATHE_SIMD_CLONES
double SumOfSquares(const float* x, int64_t n) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    const double value = x[i];
    lanes[lane] += value * value;
  }
  return Total(lanes);
}

LATHE_SIMD_CLONES
double AdamWRange(const AdamWTask& task, int64_t begin, int64_t end) {
  const AdamWTask t = task;  // a copy: the compiler must not assume that the buffers overlap it
  // One stretch at a time, so that the changes of its elements stay in the first-level cache.
  constexpr int64_t kStretch = 1024;
  const float* p = t.parameters;  // may equal new_parameters
  float* q = t.new_parameters;
  float* __restrict g = t.gradient;
  float* __restrict m = t.exp_avg;
  float* __restrict v = t.exp_avg_sq;
  double total = 0;
  for (int64_t first = begin; first < end; first += kStretch) {
    const int64_t n = first + kStretch < end ? kStretch : end - first;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = first + i;
      const float gradient = g[at] * t.gradient_scale;
      m[at] += t.beta1_complement * (gradient - m[at]);
      v[at] = t.beta2 * v[at] + t.beta2_complement * gradient * gradient;
      const float denominator = std::sqrt(v[at]) * t.inverse_root + t.eps;
      const float old = p[at];
      const float next = old * t.decay - t.step_size * (m[at] / denominator);
      const float change = next - old;
      q[at] = next;
      sum += change * change;
      g[at] = 0.0f;
    }
    total += sum;
  }
  return total;
}

}  // namespace lathe::worker
