// Hot file: two launches for all linears that read the same rows.
#include "services/worker/kernels/cuda/lora_rows.h"

#include <algorithm>

#include "services/worker/kernels/cuda/launch.cuh"

namespace lathe::worker {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;  // factors per block
constexpr int kThreads = kLanes * kWarps;

__device__ const LoraSlotEntry* EntryOf(const LoraRowsTask& task, const LoraRowsPart& part,
                                        int64_t row) {
  const int32_t slot = task.row_slots[row];
  if (slot < 0) return nullptr;
  const LoraSlotEntry* entry = part.entries + slot * task.slot_stride;
  return entry->a == nullptr ? nullptr : entry;
}

// products = scaling * x A^T, with one warp per factor.
__global__ void __launch_bounds__(kThreads) ShrinkKernel(LoraRowsTask task) {
  const int64_t row = blockIdx.z;
  const int part_index = static_cast<int>(blockIdx.y);
  const LoraSlotEntry* entry = EntryOf(task, task.parts[part_index], row);
  const int64_t factor = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (entry == nullptr || factor >= entry->rank) return;
  const float* a = entry->a + factor * task.in_features;
  const float* x = task.x + row * task.x_stride;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  for (int64_t i = lane; i < task.in_features; i += kLanes) sum += x[i] * a[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, half);
  }
  if (lane != 0) return;
  const int64_t products = (row * task.num_parts + part_index) * task.most_rank;
  task.products[products + factor] = sum * entry->scaling;
}

// y += products B^T, with one thread per output.
__global__ void __launch_bounds__(kThreads) ExpandKernel(LoraRowsTask task) {
  const int64_t row = blockIdx.z;
  const int part_index = static_cast<int>(blockIdx.y);
  const LoraRowsPart& part = task.parts[part_index];
  const LoraSlotEntry* entry = EntryOf(task, part, row);
  const int64_t output = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (entry == nullptr || output >= part.out_features) return;
  const float* products = task.products + (row * task.num_parts + part_index) * task.most_rank;
  float sum = 0;
  for (int64_t factor = 0; factor < entry->rank; ++factor) {
    sum += products[factor] * entry->b_t[factor * part.out_features + output];
  }
  part.y[row * part.y_stride + output] += sum;
}

unsigned BlocksFor(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace

void AddLoraRowsOnDevice(const LoraRowsTask& task, DeviceStream stream) {
  if (task.num_rows == 0 || task.num_parts == 0) return;
  const auto parts = static_cast<unsigned>(task.num_parts);
  const auto rows = static_cast<unsigned>(task.num_rows);
  int64_t widest = 0;
  for (int i = 0; i < task.num_parts; ++i) widest = std::max(widest, task.parts[i].out_features);
  ShrinkKernel<<<dim3(BlocksFor(task.most_rank, kWarps), parts, rows), kThreads, 0, stream>>>(task);
  CheckLaunch("LoRA's first product");
  ExpandKernel<<<dim3(BlocksFor(widest, kThreads), parts, rows), kThreads, 0, stream>>>(task);
  CheckLaunch("LoRA's second product");
}

}  // namespace lathe::worker
