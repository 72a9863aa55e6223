// Hot file: one launch for each row-wise step of a layer.
#include "services/worker/kernels/cuda/row_kernels.h"

#include <type_traits>

#include "services/worker/kernels/cuda/activations.cuh"
#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/numbers.cuh"

namespace lathe::worker {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kLanes * kWarps;
// Numbers that a thread reads or writes at once where all rows allow it.
constexpr int kVector = 4;

template <typename T>
__device__ T* RowOf(const DeviceRows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + row * rows.stride;
}

__device__ float SumOfWarp(float x) {
  for (int half = kLanes / 2; half > 0; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
  return x;
}

// Returns the sum over all threads of the block to each of them.
__device__ float SumOfBlock(float x) {
  __shared__ float sums[kWarps];
  x = SumOfWarp(x);
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kLanes == 0) sums[threadIdx.x / kLanes] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp];
  return sum;
}

// One block computes one row.
template <typename Out, int kSize>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(RmsNormDeviceTask task) {
  const float* x = RowOf<const float>(task.x, blockIdx.x);
  const float* residual =
      task.residual.data == nullptr ? nullptr : RowOf<const float>(task.residual, blockIdx.x);
  Out* y = RowOf<Out>(task.y, blockIdx.x);
  const int64_t first = threadIdx.x * kSize;
  float squares = 0;
  for (int64_t i = first; i < task.width; i += kThreads * kSize) {
    float v[kSize];
    Load(x + i, v);
#pragma unroll
    for (int j = 0; j < kSize; ++j) squares += v[j] * v[j];
  }
  const float scale = rsqrtf(SumOfBlock(squares) / static_cast<float>(task.width) + task.eps);
  for (int64_t i = first; i < task.width; i += kThreads * kSize) {
    float v[kSize];
    float w[kSize];
    Load(x + i, v);
    Load(task.weight + i, w);
#pragma unroll
    for (int j = 0; j < kSize; ++j) v[j] = v[j] * scale * w[j];
    if (residual != nullptr) {
      Load(residual + i, w);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] += w[j];
    }
    Store(v, y + i);
  }
}

// With s = 1 / rms and g = dy * weight: dx = s g - x s^3 mean(g x).
template <int kSize>
__global__ void __launch_bounds__(kThreads) RmsNormBackwardKernel(RmsNormBackwardDeviceTask task) {
  const float* x = RowOf<const float>(task.x, blockIdx.x);
  const float* dy = RowOf<const float>(task.dy, blockIdx.x);
  const float* residual =
      task.residual.data == nullptr ? nullptr : RowOf<const float>(task.residual, blockIdx.x);
  float* dx = RowOf<float>(task.dx, blockIdx.x);
  const int64_t first = threadIdx.x * kSize;
  float squares = 0;
  float products = 0;
  for (int64_t i = first; i < task.width; i += kThreads * kSize) {
    float v[kSize];
    float g[kSize];
    float w[kSize];
    Load(x + i, v);
    Load(dy + i, g);
    Load(task.weight + i, w);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      squares += v[j] * v[j];
      products += v[j] * g[j] * w[j];
    }
  }
  const auto width = static_cast<float>(task.width);
  const float scale = rsqrtf(SumOfBlock(squares) / width + task.eps);
  const float along_x = SumOfBlock(products) / width * scale * scale * scale;
  for (int64_t i = first; i < task.width; i += kThreads * kSize) {
    float v[kSize];
    float g[kSize];
    float w[kSize];
    float sum[kSize] = {};
    Load(x + i, v);
    Load(dy + i, g);
    Load(task.weight + i, w);
    if (residual != nullptr) Load(residual + i, sum);
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum[j] += g[j] * w[j] * scale - v[j] * along_x;
    Store(sum, dx + i);
  }
}

template <typename T, int kSize, bool kIsBackward>
__global__ void __launch_bounds__(kThreads) GatedActivationKernel(GatedActivationDeviceTask task) {
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kSize;
  if (i >= task.width) return;
  T* gate = RowOf<T>(task.gate, blockIdx.x) + i;
  T* up = RowOf<T>(task.up, blockIdx.x) + i;
  T* y = RowOf<T>(task.y, blockIdx.x) + i;
  float g[kSize];
  float u[kSize];
  Load(gate, g);
  Load(up, u);
  if constexpr (kIsBackward) {
    float dy[kSize];
    Load(y, dy);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float dup = Activated(task.activation, g[j]) * dy[j];
      g[j] = dy[j] * u[j] * Slope(task.activation, g[j]);
      u[j] = dup;
    }
    Store(g, gate);
    Store(u, up);
  } else {
#pragma unroll
    for (int j = 0; j < kSize; ++j) u[j] *= Activated(task.activation, g[j]);
    Store(u, y);
  }
}

// One warp computes one head of one row. Lane l holds the pairs (i, i + D/2) for i = l, l + 32, …
template <typename T, int kHeadDim, bool kIsBackward>
__global__ void __launch_bounds__(kThreads) PrepareHeadsKernel(PrepareHeadsDeviceTask task) {
  constexpr int kHalf = kHeadDim / 2;
  constexpr int kPairs = kHalf / kLanes;
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (index >= task.num_rows * task.num_heads) return;
  const int64_t row = index / task.num_heads;
  const int64_t offset = index % task.num_heads * kHeadDim;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  T* x = RowOf<T>(task.x, row) + offset;
  T* y = RowOf<T>(task.y, row) + offset;

  float first[kPairs];
  float second[kPairs];
  float scale = 1;
  if (!kIsBackward || task.weight != nullptr) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      first[i] = ToFloat(x[lane + i * kLanes]);
      second[i] = ToFloat(x[kHalf + lane + i * kLanes]);
      squares += first[i] * first[i] + second[i] * second[i];
    }
    if (task.weight != nullptr) scale = rsqrtf(SumOfWarp(squares) / kHeadDim + task.eps);
  }
  float cos[kPairs];
  float sin[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    cos[i] = 1;
    sin[i] = 0;
  }
  if (task.cos != nullptr) {
    const int64_t angle = task.positions[row] * kHalf;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      cos[i] = task.cos[angle + lane + i * kLanes];
      sin[i] = task.sin[angle + lane + i * kLanes];
    }
  }

  if constexpr (!kIsBackward) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kLanes;
      if (task.weight != nullptr) {
        first[i] *= scale * task.weight[at];
        second[i] *= scale * task.weight[kHalf + at];
      }
      Write(first[i] * cos[i] - second[i] * sin[i], y + at);
      Write(second[i] * cos[i] + first[i] * sin[i], y + kHalf + at);
    }
    return;
  }

  // The gradient of the norm's output, which is rotated back.
  float dfirst[kPairs];
  float dsecond[kPairs];
  float products = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int at = lane + i * kLanes;
    const float dy1 = ToFloat(y[at]);
    const float dy2 = ToFloat(y[kHalf + at]);
    dfirst[i] = dy1 * cos[i] + dy2 * sin[i];
    dsecond[i] = dy2 * cos[i] - dy1 * sin[i];
    if (task.weight != nullptr) {
      dfirst[i] *= task.weight[at];
      dsecond[i] *= task.weight[kHalf + at];
      products += dfirst[i] * first[i] + dsecond[i] * second[i];
    }
  }
  if (task.weight != nullptr) {
    const float along_x = SumOfWarp(products) / kHeadDim * scale * scale * scale;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      dfirst[i] = dfirst[i] * scale - first[i] * along_x;
      dsecond[i] = dsecond[i] * scale - second[i] * along_x;
    }
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    Write(dfirst[i], x + lane + i * kLanes);
    Write(dsecond[i], x + kHalf + lane + i * kLanes);
  }
}

template <typename... Rows>
bool AreVectors(int64_t width, const Rows&... rows) {
  const auto fits = [](const DeviceRows& one) {
    const auto size = static_cast<uint64_t>(kVector * (one.is_bf16 ? 2 : 4));
    return one.stride % kVector == 0 && reinterpret_cast<uint64_t>(one.data) % size == 0;
  };
  return width % kVector == 0 && (fits(rows) && ...);
}

DeviceRows WeightOf(const float* weight) { return {.data = const_cast<float*>(weight)}; }

unsigned BlocksFor(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

template <typename Out>
void LaunchRmsNorm(const RmsNormDeviceTask& task, DeviceStream stream) {
  const auto kernel = AreVectors(task.width, task.x, task.residual, task.y, WeightOf(task.weight))
                          ? RmsNormKernel<Out, kVector>
                          : RmsNormKernel<Out, 1>;
  Launch("RMS norm", kernel, {static_cast<unsigned>(task.num_rows), kThreads}, stream, task);
}

template <bool kIsBackward>
void LaunchGatedActivation(const GatedActivationDeviceTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  const bool is_vector = AreVectors(task.width, task.gate, task.up, task.y);
  const dim3 grid(static_cast<unsigned>(task.num_rows),
                  BlocksFor(task.width, kThreads * (is_vector ? kVector : 1)));
  const auto launch = [&](auto kernel) {
    Launch("activation of the MLP", kernel, {grid, kThreads}, stream, task);
  };
  if (task.gate.is_bf16) {
    is_vector ? launch(GatedActivationKernel<__nv_bfloat16, kVector, kIsBackward>)
              : launch(GatedActivationKernel<__nv_bfloat16, 1, kIsBackward>);
  } else {
    is_vector ? launch(GatedActivationKernel<float, kVector, kIsBackward>)
              : launch(GatedActivationKernel<float, 1, kIsBackward>);
  }
}

template <typename T, bool kIsBackward>
void LaunchPrepareHeads(const PrepareHeadsDeviceTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  const auto kernel = task.head_dim == 64    ? PrepareHeadsKernel<T, 64, kIsBackward>
                      : task.head_dim == 128 ? PrepareHeadsKernel<T, 128, kIsBackward>
                                             : PrepareHeadsKernel<T, 256, kIsBackward>;
  Launch("norm and rope of heads", kernel,
         {BlocksFor(task.num_rows * task.num_heads, kWarps), kThreads}, stream, task);
}

}  // namespace

void RmsNormOnDevice(const RmsNormDeviceTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  task.y.is_bf16 ? LaunchRmsNorm<__nv_bfloat16>(task, stream) : LaunchRmsNorm<float>(task, stream);
}

void RmsNormBackwardOnDevice(const RmsNormBackwardDeviceTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  const auto kernel =
      AreVectors(task.width, task.x, task.dy, task.residual, task.dx, WeightOf(task.weight))
          ? RmsNormBackwardKernel<kVector>
          : RmsNormBackwardKernel<1>;
  Launch("gradient of RMS norm", kernel, {static_cast<unsigned>(task.num_rows), kThreads}, stream,
         task);
}

void GatedActivationOnDevice(const GatedActivationDeviceTask& task, DeviceStream stream) {
  LaunchGatedActivation<false>(task, stream);
}

void GatedActivationBackwardOnDevice(const GatedActivationDeviceTask& task, DeviceStream stream) {
  LaunchGatedActivation<true>(task, stream);
}

void PrepareHeadsOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream stream) {
  task.x.is_bf16 ? LaunchPrepareHeads<__nv_bfloat16, false>(task, stream)
                 : LaunchPrepareHeads<float, false>(task, stream);
}

void PrepareHeadsBackwardOnDevice(const PrepareHeadsDeviceTask& task, DeviceStream stream) {
  task.x.is_bf16 ? LaunchPrepareHeads<__nv_bfloat16, true>(task, stream)
                 : LaunchPrepareHeads<float, true>(task, stream);
}

}  // namespace lathe::worker
