#include "services/worker/kernels/cpu/row_kernels.h"

#include <cmath>

#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {
namespace {

LATHE_INLINE float InverseRms(const float* x, int64_t width, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / static_cast<float>(width) + eps);
}

LATHE_INLINE float Sigmoid(float x) {
  const float e = FastExp(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

// kHalf: half the head size, known to the compiler; 0: any.
template <int kHalf>
LATHE_INLINE void NormRope(const NormRopeTask& task, int64_t begin, int64_t end) {
  const int64_t half = kHalf > 0 ? kHalf : task.head_dim / 2;
  const float* weight = task.weight;
  for (int64_t row = begin; row < end; ++row) {
    const float* cos = task.cos + task.positions[row] * half;
    const float* sin = task.sin + task.positions[row] * half;
    for (int64_t head = 0; head < task.num_heads; ++head) {
      const float* x = task.x + row * task.x_stride + head * 2 * half;
      float* y = task.y + (row * task.num_heads + head) * 2 * half;
      const float scale = InverseRms(x, 2 * half, task.eps);
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float first = x[i] * scale * weight[i];
        const float second = x[half + i] * scale * weight[half + i];
        y[i] = first * cos[i] - second * sin[i];
        y[half + i] = second * cos[i] + first * sin[i];
      }
    }
  }
}

}  // namespace

LATHE_SIMD_CLONES
void RmsNormRows(const RmsNormTask& task, int64_t begin, int64_t end) {
  const int64_t width = task.width;
  const float* weight = task.weight;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = task.x + row * task.x_stride;
    float* y = task.y + row * width;
    const float scale = InverseRms(x, width, task.eps);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y[i] = x[i] * scale * weight[i];
  }
}

LATHE_SIMD_CLONES
void NormRopeRows(const NormRopeTask& task, int64_t begin, int64_t end) {
  switch (task.head_dim) {
    case 16:
      return NormRope<8>(task, begin, end);
    case 128:
      return NormRope<64>(task, begin, end);
    default:
      return NormRope<0>(task, begin, end);
  }
}

LATHE_SIMD_CLONES
void SiluMulRows(const SiluMulTask& task, int64_t begin, int64_t end) {
  const int64_t width = task.width;
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = task.gate + row * task.gate_stride;
    const float* up = task.up + row * task.up_stride;
    float* y = task.y + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
  }
}

}  // namespace lathe::worker
