// Hot file: two launches for all linears that read the same rows. The second also takes the steps
// that surround it in a decode pass: bias, residual and the activation of an MLP.
#include "services/worker/kernels/cuda/lora_rows.h"

#include <algorithm>
#include <type_traits>

#include "services/worker/kernels/cuda/activations.cuh"
#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/numbers.cuh"

namespace lathe::worker {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kLanes * kWarps;
constexpr int kFactors = 4;   // per block of the first product
constexpr int kTileRows = 4;  // neighbouring rows that a block computes together
// Numbers of x and A that a thread reads at once where all rows allow it.
constexpr int kVector = 4;

template <int kSize, typename T>
__device__ Numbers<T, kSize> Load(const T* from) {
  return *reinterpret_cast<const Numbers<T, kSize>*>(from);
}

// `a` of the result is null if the row's adapter lacks the part.
__device__ LoraSlotEntry EntryOf(const LoraRowsTask& task, const LoraRowsPart& part, int64_t row) {
  const int32_t slot = task.row_slots[row];
  return slot < 0 ? LoraSlotEntry{} : part.entries[slot * task.slot_stride];
}

// Calls run(rows, row) for the rows of a block's tile: once if all have one adapter, so that its
// factors are read once, otherwise for each row. Either way a row's sums have the same order.
template <int kRows, typename Run>
__device__ void ForTile(const LoraRowsTask& task, const Run& run) {
  const int64_t first = int64_t{blockIdx.z} * kRows;
  bool is_one = first + kRows <= task.num_rows;
  for (int i = 1; i < kRows && is_one; ++i) {
    is_one = task.row_slots[first + i] == task.row_slots[first];
  }
  if (is_one) return run(std::integral_constant<int, kRows>(), first);
  for (int64_t row = first; row < first + kRows && row < task.num_rows; ++row) {
    run(std::integral_constant<int, 1>(), row);
  }
}

// products = scaling * x A^T of kRows rows and kFactors factors; the block's threads divide the
// inputs.
template <typename X, int kRows, int kSize>
__device__ void Shrink(const LoraRowsTask& task, int part_index, int64_t row,
                       const LoraSlotEntry& entry) {
  __shared__ float partial_sums[kWarps][kTileRows * kFactors];
  const int64_t first_factor = int64_t{blockIdx.x} * kFactors;
  if (first_factor >= entry.rank) return;
  // Factors beyond the rank repeat the last one and are not written.
  const float* a[kFactors];
#pragma unroll
  for (int f = 0; f < kFactors; ++f) {
    const int64_t factor = first_factor + f < entry.rank ? first_factor + f : entry.rank - 1;
    a[f] = entry.a + factor * task.in_features;
  }
  float sums[kRows][kFactors] = {};
  for (int64_t i = threadIdx.x * kSize; i < task.in_features; i += kThreads * kSize) {
    Numbers<X, kSize> x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      x[r] = Load<kSize>(static_cast<const X*>(task.x) + (row + r) * task.x_stride + i);
    }
#pragma unroll
    for (int f = 0; f < kFactors; ++f) {
      const Numbers<float, kSize> weights = Load<kSize>(a[f] + i);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) sums[r][f] += ToFloat(x[r].at[j]) * weights.at[j];
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int f = 0; f < kFactors; ++f) {
      float sum = sums[r][f];
      for (int half = kLanes / 2; half > 0; half /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, half);
      }
      if (lane == 0) partial_sums[warp][r * kFactors + f] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x < kRows * kFactors) {
    const int64_t r = threadIdx.x / kFactors;
    const int64_t factor = first_factor + threadIdx.x % kFactors;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial_sums[w][threadIdx.x];
    const int64_t products = ((row + r) * task.num_parts + part_index) * task.most_rank;
    if (factor < entry.rank) task.products[products + factor] = sum * entry.scaling;
  }
  __syncthreads();  // the next row of the tile writes its own sums
}

template <typename X, int kRows, int kSize>
__global__ void __launch_bounds__(kThreads) ShrinkKernel(LoraRowsTask task) {
  const int part_index = static_cast<int>(blockIdx.y);
  ForTile<kRows>(task, [&](auto rows, int64_t row) {
    constexpr int kCount = decltype(rows)::value;
    const LoraSlotEntry entry = EntryOf(task, task.parts[part_index], row);
    if (entry.a == nullptr) return;
    // An adapter's factors begin anywhere in its buffer.
    if (reinterpret_cast<uint64_t>(entry.a) % (4 * kSize) == 0) {
      Shrink<X, kCount, kSize>(task, part_index, row, entry);
    } else {
      Shrink<X, kCount, 1>(task, part_index, row, entry);
    }
  });
}

// One output of a part in kRows rows with one adapter: y, residual, bias, and products B^T.
template <typename Y, int kRows>
__device__ void Expand(const LoraRowsTask& task, int part_index, int64_t row,
                       const LoraSlotEntry& entry, int64_t output, float (&values)[kRows]) {
  const LoraRowsPart& part = task.parts[part_index];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    values[r] = ToFloat(static_cast<const Y*>(part.y)[(row + r) * part.y_stride + output]);
    if (part.residual != nullptr) {
      values[r] = Rounded<Y>(values[r] + part.residual[(row + r) * part.residual_stride + output]);
    }
    if (part.bias != nullptr) values[r] = Rounded<Y>(values[r] + part.bias[output]);
  }
  if (entry.a == nullptr) return;
  const float* products = task.products + (row * task.num_parts + part_index) * task.most_rank;
  const float* b = entry.b_t + output;
  float sums[kRows] = {};
#pragma unroll 16
  for (int64_t factor = 0; factor < entry.rank; ++factor) {
    const float weight = b[factor * part.out_features];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sums[r] += products[r * task.num_parts * task.most_rank + factor] * weight;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) values[r] = Rounded<Y>(values[r] + sums[r]);
}

// One thread computes one output of one part.
template <typename Y, int kRows>
__global__ void __launch_bounds__(kThreads) ExpandKernel(LoraRowsTask task) {
  const int part_index = static_cast<int>(blockIdx.y);
  const LoraRowsPart& part = task.parts[part_index];
  const int64_t output = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (output >= part.out_features) return;
  ForTile<kRows>(task, [&](auto rows, int64_t row) {
    constexpr int kCount = decltype(rows)::value;
    const LoraSlotEntry entry = EntryOf(task, part, row);
    if (entry.a == nullptr && part.residual == nullptr && part.bias == nullptr) return;
    float values[kCount];
    Expand<Y>(task, part_index, row, entry, output, values);
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      Write(values[r], static_cast<Y*>(part.y) + (row + r) * part.y_stride + output);
    }
  });
}

// One thread computes one output of both parts, and activates it.
template <typename Y, int kRows>
__global__ void __launch_bounds__(kThreads) ExpandGatedKernel(LoraRowsTask task) {
  const int64_t output = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (output >= task.parts[0].out_features) return;
  ForTile<kRows>(task, [&](auto rows, int64_t row) {
    constexpr int kCount = decltype(rows)::value;
    float gate[kCount];
    float up[kCount];
    Expand<Y>(task, 0, row, EntryOf(task, task.parts[0], row), output, gate);
    Expand<Y>(task, 1, row, EntryOf(task, task.parts[1], row), output, up);
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      Y* to = static_cast<Y*>(task.activated) + (row + r) * task.activated_stride + output;
      Write(up[r] * Activated(task.activation, gate[r]), to);
    }
  });
}

unsigned BlocksFor(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

using Kernel = void (*)(LoraRowsTask);

template <typename X>
Kernel ShrinkFor(const LoraRowsTask& task, bool has_tiles) {
  const bool has_vectors = task.in_features % kVector == 0 && task.x_stride % kVector == 0 &&
                           reinterpret_cast<uint64_t>(task.x) % (sizeof(X) * kVector) == 0;
  if (has_tiles) {
    return has_vectors ? ShrinkKernel<X, kTileRows, kVector> : ShrinkKernel<X, kTileRows, 1>;
  }
  return has_vectors ? ShrinkKernel<X, 1, kVector> : ShrinkKernel<X, 1, 1>;
}

template <typename Y>
Kernel ExpandFor(const LoraRowsTask& task, bool has_tiles) {
  if (task.activated != nullptr) {
    return has_tiles ? ExpandGatedKernel<Y, kTileRows> : ExpandGatedKernel<Y, 1>;
  }
  return has_tiles ? ExpandKernel<Y, kTileRows> : ExpandKernel<Y, 1>;
}

}  // namespace

void AddLoraRowsOnDevice(const LoraRowsTask& task, DeviceStream stream) {
  if (task.num_rows == 0 || task.num_parts == 0) return;
  const auto parts = static_cast<unsigned>(task.num_parts);
  const auto rows = static_cast<unsigned>(task.num_rows);
  int64_t widest = 0;
  for (int i = 0; i < task.num_parts; ++i) widest = std::max(widest, task.parts[i].out_features);
  const bool has_tiles = task.num_rows >= 2 * kTileRows;
  const unsigned tiles = has_tiles ? BlocksFor(task.num_rows, kTileRows) : rows;
  const dim3 shrink_grid(BlocksFor(task.most_rank, kFactors), parts, tiles);
  const auto shrink = task.x_is_bf16 ? ShrinkFor<__nv_bfloat16>(task, has_tiles)
                                     : ShrinkFor<float>(task, has_tiles);
  Launch("LoRA's first product", shrink, {shrink_grid, kThreads}, stream, task);
  // Threads of the gated kernel compute both parts.
  const dim3 expand_grid(BlocksFor(widest, kThreads), task.activated == nullptr ? parts : 1, tiles);
  const auto expand = task.y_is_bf16 ? ExpandFor<__nv_bfloat16>(task, has_tiles)
                                     : ExpandFor<float>(task, has_tiles);
  Launch("LoRA's second product", expand, {expand_grid, kThreads}, stream, task);
}

}  // namespace lathe::worker
