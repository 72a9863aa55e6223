#include "services/worker/kernels/emulation/planted_kernels.h"

#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/numbers.cuh"

namespace lathe::worker {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 2;
constexpr int kThreads = kLanes * kWarps;
constexpr unsigned kAll = 0xffffffffu;

template <Defect kDefect>
__device__ float SumOfWarp(float x) {
  constexpr int kLast = kDefect == Defect::kMissingHalf ? 1 : 0;
  for (int half = kLanes / 2; half > kLast; half /= 2) x += __shfl_xor_sync(kAll, x, half);
  return x;
}

// Returns the sum over all threads of the block to each of them.
template <Defect kDefect>
__device__ float SumOfBlock(float x) {
  __shared__ float sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  x = SumOfWarp<kDefect>(x);
  if (kDefect != Defect::kNoBarrierBeforeWrite) __syncthreads();
  if (threadIdx.x % kLanes == 0) {
    if (kDefect != Defect::kReadOfUnwritten || warp > 0) sums[warp] = x;
  }
  if (kDefect == Defect::kBarriersOfTwoBranches) {
    if (warp == 0) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if (kDefect != Defect::kNoBarrierBeforeRead) {
    __syncthreads();
  }
  const int count = kWarps + static_cast<int>(blockDim.y) - 1;  // that the compiler does not know
  const int more = kDefect == Defect::kIndexBeyondShared ? 1 : 0;
  float sum = 0;
  for (int i = 0; i < count + more; ++i) sum += sums[i];
  return sum;
}

template <Defect kDefect>
__device__ float SumOfThread(const float* x, int64_t width) {
  float sum = 0;
  if (kDefect == Defect::kMisalignedVector) {
    float four[4];
    Load(x + 1, four);
    sum += four[0];
  }
  const int64_t end = kDefect == Defect::kReadBeyondBuffer ? width + 1 : width;
  for (int64_t i = threadIdx.x; i < end; i += kThreads) sum += x[i];
  return sum;
}

// Passes a number around each warp and back, in shared memory.
template <Defect kDefect>
__device__ float ThroughMemory(float x) {
  auto* numbers = DynamicShared<float>();
  const int own = static_cast<int>(threadIdx.x);
  const int other = own / kLanes * kLanes + (own + 1) % kLanes;
  numbers[other] = x;
  if (kDefect != Defect::kNoWarpBarrier) __syncwarp();
  x = numbers[own];
  if (kDefect == Defect::kReadBeyondDynamicShared) x += numbers[kThreads + own];
  const int lane = own % kLanes;
  return __shfl_sync(kAll, x, (lane + 1) % kLanes);
}

template <Defect kDefect>
__device__ void Count() {
  __shared__ int num_threads;
  if (threadIdx.x == 0) num_threads = 0;
  __syncthreads();
  if (kDefect == Defect::kPlainReadOfCounter && threadIdx.x == 1 && num_threads > 100) return;
  atomicAdd(&num_threads, 1);
}

template <Defect kDefect>
__device__ void ReadOtherStack() {
  __shared__ float* place;
  float own = 1;
  if (threadIdx.x == 0) place = &own;
  __syncthreads();
  if (threadIdx.x == 1) *place = 2;
  __syncthreads();
}

template <Defect kDefect>
__global__ void __launch_bounds__(kThreads) SumRowsKernel(SumRowsTask task) {
  const int64_t row = blockIdx.x;
  const float* x = task.x + row * task.width;
  if (kDefect == Defect::kBarrierAfterAnEnd && threadIdx.x == kThreads - 1) return;
  if constexpr (kDefect == Defect::kReadOfOtherStack) ReadOtherStack<kDefect>();
  Count<kDefect>();
  const float part = ThroughMemory<kDefect>(SumOfThread<kDefect>(x, task.width));
  // The second sum takes the place of the first.
  float twice = SumOfBlock<kDefect>(part) + SumOfBlock<kDefect>(part);
  if (kDefect == Defect::kExchangeWithEnded) {
    if (threadIdx.x % kLanes == 5) return;
    twice += SumOfWarp<kDefect>(twice);
  }
  if (kDefect == Defect::kBarrierOfSomeThreads && threadIdx.x < kLanes) __syncthreads();
  if (threadIdx.x > 0) return;
  task.sums[kDefect == Defect::kOneRowForTwoBlocks ? 0 : row] = twice / 2;
  if (kDefect == Defect::kWriteOfConstants) const_cast<float*>(x)[0] = 0;
}

using Kernel = void (*)(SumRowsTask);

template <int... kDefects>
Kernel KernelOf(Defect defect, std::integer_sequence<int, kDefects...>) {
  constexpr Kernel kernels[] = {SumRowsKernel<static_cast<Defect>(kDefects)>...};
  return kernels[static_cast<int>(defect)];
}

}  // namespace

void SumRows(Defect defect, const SumRowsTask& task) {
  constexpr int kNumDefects = static_cast<int>(Defect::kMissingHalf) + 1;
  Launch("sum of rows", KernelOf(defect, std::make_integer_sequence<int, kNumDefects>()),
         {static_cast<unsigned>(task.num_rows), kThreads, kThreads * sizeof(float)}, nullptr, task);
}

}  // namespace lathe::worker
