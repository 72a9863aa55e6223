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

// Both activations are x * sigmoid(z(x)); `slope` is dz/dx.
struct Silu {
  static LATHE_INLINE float z(float x) { return x; }
  static LATHE_INLINE float slope(float /*x*/) { return 1.0f; }
};

// x / 2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh(u)) / 2 is
// sigmoid(2u).
struct GeluTanh {
  static constexpr float kLinear = 1.5957691216f;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715f * kLinear;

  static LATHE_INLINE float z(float x) { return x * (kLinear + kCubic * x * x); }
  static LATHE_INLINE float slope(float x) { return kLinear + 3 * kCubic * x * x; }
};

// Calls run(Silu()) or run(GeluTanh()).
template <typename F>
LATHE_INLINE void WithActivation(Activation activation, const F& run) {
  activation == Activation::kSilu ? run(Silu()) : run(GeluTanh());
}

// Calls run(half, row, head, cos, sin) for each head of the rows. `half` is half the head size, a
// compile-time constant for common sizes; cos and sin are those of the row's position.
template <bool kHasRope, typename Task, typename F>
LATHE_INLINE void ForHeads(const Task& task, int64_t begin, int64_t end, const F& run) {
  const auto loop = [&](auto half) LATHE_INLINE_LAMBDA {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t angles = kHasRope ? task.positions[row] * half : 0;
      for (int64_t head = 0; head < task.num_heads; ++head) {
        run(half, row, head, task.cos + angles, task.sin + angles);
      }
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

// Calls run(has_norm, has_rope) with the task's steps as compile-time constants.
template <typename Task, typename F>
LATHE_INLINE void WithSteps(const Task& task, const F& run) {
  const auto with_norm = [&](auto has_norm) LATHE_INLINE_LAMBDA {
    task.cos != nullptr ? run(has_norm, std::true_type()) : run(has_norm, std::false_type());
  };
  task.weight != nullptr ? with_norm(std::true_type()) : with_norm(std::false_type());
}

template <bool kHasNorm, bool kHasRope>
LATHE_INLINE void PrepareHead(const PrepareHeadsTask& task, int64_t half, const float* x,
                              const float* cos, const float* sin, float* y) {
  const float* weight = task.weight;
  const float scale = kHasNorm ? InverseRms(x, 2 * half, task.eps) : 1.0f;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float first = kHasNorm ? x[i] * scale * weight[i] : x[i];
    const float second = kHasNorm ? x[half + i] * scale * weight[half + i] : x[half + i];
    y[i] = kHasRope ? first * cos[i] - second * sin[i] : first;
    y[half + i] = kHasRope ? second * cos[i] + first * sin[i] : second;
  }
}

template <bool kHasNorm, bool kHasRope>
LATHE_INLINE void PrepareHeadBackward(const PrepareHeadsBackwardTask& task, int64_t half,
                                      const float* x, const float* cos, const float* sin, float* g,
                                      float* dx) {
  const float* weight = task.weight;
  float* to = kHasNorm ? g : dx;
  // dL/d(x / rms): rotation by the opposite angle, then the weight.
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float first = kHasRope ? g[i] * cos[i] + g[half + i] * sin[i] : g[i];
    const float second = kHasRope ? g[half + i] * cos[i] - g[i] * sin[i] : g[half + i];
    to[i] = kHasNorm ? first * weight[i] : first;
    to[half + i] = kHasNorm ? second * weight[half + i] : second;
  }
  if (!kHasNorm) return;
  const float scale = InverseRms(x, 2 * half, task.eps);
  const float along_x = Dot(g, x, 2 * half) / static_cast<float>(2 * half) * scale * scale;
#pragma omp simd
  for (int64_t i = 0; i < 2 * half; ++i) dx[i] = (g[i] - x[i] * along_x) * scale;
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
void PrepareHeadsRows(const PrepareHeadsTask& task, int64_t begin, int64_t end) {
  WithSteps(task, [&](auto has_norm, auto has_rope) LATHE_INLINE_LAMBDA {
    ForHeads<has_rope>(task, begin, end,
                       [&](auto half, int64_t row, int64_t head, const float* cos, const float* sin)
                           LATHE_INLINE_LAMBDA {
                             PrepareHead<has_norm, has_rope>(
                                 task, half, task.x + row * task.x_stride + head * 2 * half, cos,
                                 sin, task.y + (row * task.num_heads + head) * 2 * half);
                           });
  });
}

LATHE_SIMD_CLONES
void GatedActivationRows(const GatedActivationTask& task, int64_t begin, int64_t end) {
  WithActivation(task.activation, [&](auto activation) LATHE_INLINE_LAMBDA {
    using Act = decltype(activation);
    const int64_t width = task.width;
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = task.gate + row * task.gate_stride;
      const float* up = task.up + row * task.up_stride;
      float* y = task.y + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) y[i] = gate[i] * Sigmoid(Act::z(gate[i])) * up[i];
    }
  });
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
void PrepareHeadsBackwardRows(const PrepareHeadsBackwardTask& task, int64_t begin, int64_t end) {
  WithSteps(task, [&](auto has_norm, auto has_rope) LATHE_INLINE_LAMBDA {
    ForHeads<has_rope>(task, begin, end,
                       [&](auto half, int64_t row, int64_t head, const float* cos, const float* sin)
                           LATHE_INLINE_LAMBDA {
                             const int64_t place = head * 2 * half;
                             PrepareHeadBackward<has_norm, has_rope>(
                                 task, half, task.x + row * task.x_stride + place, cos, sin,
                                 task.dy + row * task.num_heads * 2 * half + place,
                                 task.dx + row * task.dx_stride + place);
                           });
  });
}

LATHE_SIMD_CLONES
void GatedActivationBackwardRows(const GatedActivationBackwardTask& task, int64_t begin,
                                 int64_t end) {
  WithActivation(task.activation, [&](auto activation) LATHE_INLINE_LAMBDA {
    using Act = decltype(activation);
    const int64_t width = task.width;
    for (int64_t row = begin; row < end; ++row) {
      float* gate = task.gate + row * task.gate_stride;
      float* up = task.up + row * task.up_stride;
      const float* dy = task.dy + row * task.dy_stride;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float sigmoid = Sigmoid(Act::z(gate[i]));
        const float activated = gate[i] * sigmoid;
        const float dactivated = dy[i] * up[i];
        const float slope = Act::slope(gate[i]);
        up[i] = dy[i] * activated;
        gate[i] = dactivated * (sigmoid + activated * (1.0f - sigmoid) * slope);
      }
    }
  });
}

}  // namespace lathe::worker
