#include "services/worker/kernels/cpu/row_kernels.h"

#include <cmath>
#include <type_traits>

#include "services/worker/kernels/cpu/vectors.h"

namespace lathe::worker {
namespace {

LATHE_INLINE float InverseRms(const float* x, int64_t width, float eps) {
  return 1.0f / std::sqrt(Dot(x, x, width) / static_cast<float>(width) + eps);
}

LATHE_INLINE float Sigmoid(float x) {
  const float e = FastExp(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

// Calls run(half, row, head, cos, sin) for each head of the rows. `half` is half the head size, a
// compile-time constant for common sizes; cos and sin are those of the row's position.
template <typename Task, typename F>
LATHE_INLINE void ForHeads(const Task& task, int64_t begin, int64_t end, const F& run) {
  const auto loop = [&](auto half) LATHE_INLINE_LAMBDA {
    for (int64_t row = begin; row < end; ++row) {
      const float* cos = task.cos + task.positions[row] * half;
      const float* sin = task.sin + task.positions[row] * half;
      for (int64_t head = 0; head < task.num_heads; ++head) run(half, row, head, cos, sin);
    }
  };
  switch (task.head_dim) {
    case 16:
      return loop(std::integral_constant<int64_t, 8>());
    case 128:
      return loop(std::integral_constant<int64_t, 64>());
    default:
      return loop(task.head_dim / 2);
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
  const float* weight = task.weight;
  const auto run = [&task, weight](int64_t half, int64_t row, int64_t head, const float* cos,
                                   const float* sin) LATHE_INLINE_LAMBDA {
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
  };
  ForHeads(task, begin, end, run);
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

LATHE_SIMD_CLONES
void RmsNormBackwardRows(const RmsNormBackwardTask& task, int64_t begin, int64_t end) {
  const int64_t width = task.width;
  const float* weight = task.weight;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = task.x + row * task.x_stride;
    const float* dy = task.dy + row * task.dy_stride;
    float* dx = task.dx + row * task.dx_stride;
    const float scale = InverseRms(x, width, task.eps);
    // With s = 1/rms and g = dy * weight: dx = s (g - x s^2 mean(g x)).
    const float sum =
        SumOfBlocks(width, [x, dy, weight](Floats& s, const auto& load)
                               LATHE_INLINE_LAMBDA { s += load(dy) * load(weight) * load(x); });
    const float along_x = sum / static_cast<float>(width) * scale * scale;
    if (task.residual == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) dx[i] = (dy[i] * weight[i] - x[i] * along_x) * scale;
    } else {
      const float* residual = task.residual + row * task.residual_stride;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        dx[i] = (dy[i] * weight[i] - x[i] * along_x) * scale + residual[i];
      }
    }
  }
}

LATHE_SIMD_CLONES
void NormRopeBackwardRows(const NormRopeBackwardTask& task, int64_t begin, int64_t end) {
  const float* weight = task.weight;
  const auto run = [&task, weight](int64_t half, int64_t row, int64_t head, const float* cos,
                                   const float* sin) LATHE_INLINE_LAMBDA {
    const float* x = task.x + row * task.x_stride + head * 2 * half;
    float* g = task.dy + (row * task.num_heads + head) * 2 * half;
    float* dx = task.dx + row * task.dx_stride + head * 2 * half;
    // dL/d(x / rms): rotation by the opposite angle, then the weight.
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float first = g[i] * cos[i] + g[half + i] * sin[i];
      const float second = g[half + i] * cos[i] - g[i] * sin[i];
      g[i] = first * weight[i];
      g[half + i] = second * weight[half + i];
    }
    const float scale = InverseRms(x, 2 * half, task.eps);
    const float along_x = Dot(g, x, 2 * half) / static_cast<float>(2 * half) * scale * scale;
#pragma omp simd
    for (int64_t i = 0; i < 2 * half; ++i) dx[i] = (g[i] - x[i] * along_x) * scale;
  };
  ForHeads(task, begin, end, run);
}

LATHE_SIMD_CLONES
void SiluMulBackwardRows(const SiluMulBackwardTask& task, int64_t begin, int64_t end) {
  const int64_t width = task.width;
  for (int64_t row = begin; row < end; ++row) {
    float* gate = task.gate + row * task.gate_stride;
    float* up = task.up + row * task.up_stride;
    const float* dy = task.dy + row * task.dy_stride;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float sigmoid = Sigmoid(gate[i]);
      const float silu = gate[i] * sigmoid;
      const float dsilu = dy[i] * up[i];
      up[i] = dy[i] * silu;
      gate[i] = dsilu * (sigmoid + silu * (1.0f - sigmoid));
    }
  }
}

}  // namespace lathe::worker
