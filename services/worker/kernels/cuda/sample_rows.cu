#include "services/worker/kernels/cuda/sample_rows.h"

#include "services/worker/kernels/cuda/launch.cuh"
#include "services/worker/kernels/cuda/sample_row.h"

namespace lathe::worker {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / sampling::kLanes;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Shared {
  uint64_t sums[kWarps][sampling::kMostSums];
  uint64_t minima[kWarps];
  float maxima[kWarps];
  int num_claims;
};

// The threads of one block; see sample_row.h.
class BlockTeam {
 public:
  __device__ BlockTeam(Shared& shared, float* stretch_sums)
      : shared_(shared), stretch_sums_(stretch_sums) {}

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return kThreads; }
  __device__ float* stretch_sums() { return stretch_sums_; }
  __device__ void Sync() { __syncthreads(); }

  __device__ float SumLanes(float x) {
    for (int half = sampling::kLanes / 2; half > 0; half /= 2) {
      x += __shfl_down_sync(kAllLanes, x, half);
    }
    return x;
  }

  __device__ float Max(float x) {
    for (int half = sampling::kLanes / 2; half > 0; half /= 2) {
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, half));
    }
    if (lane() == 0) shared_.maxima[warp()] = x;
    __syncthreads();
    for (int i = 0; i < kWarps; ++i) x = fmaxf(x, shared_.maxima[i]);
    __syncthreads();
    return x;
  }

  __device__ uint64_t Min(uint64_t x) {
    for (int half = sampling::kLanes / 2; half > 0; half /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, x, half);
      x = other < x ? other : x;
    }
    if (lane() == 0) shared_.minima[warp()] = x;
    __syncthreads();
    for (int i = 0; i < kWarps; ++i) x = shared_.minima[i] < x ? shared_.minima[i] : x;
    __syncthreads();
    return x;
  }

  template <int kCount>
  __device__ void Sum(uint64_t (&x)[kCount]) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      for (int half = sampling::kLanes / 2; half > 0; half /= 2) {
        x[j] += __shfl_xor_sync(kAllLanes, x[j], half);
      }
      if (lane() == 0) shared_.sums[warp()][j] = x[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      x[j] = 0;
      for (int i = 0; i < kWarps; ++i) x[j] += shared_.sums[i][j];
    }
    __syncthreads();
  }

  __device__ void ResetClaims() {
    if (threadIdx.x == 0) shared_.num_claims = 0;
    __syncthreads();
  }
  __device__ int Claim() { return atomicAdd(&shared_.num_claims, 1); }

 private:
  __device__ int lane() const { return rank() % sampling::kLanes; }
  __device__ int warp() const { return rank() / sampling::kLanes; }

  Shared& shared_;
  float* stretch_sums_;
};

// Runs one block per row.
__global__ void __launch_bounds__(kThreads) SampleRowsKernel(SampleRowsTask task) {
  __shared__ Shared shared;
  BlockTeam team(shared, DynamicShared<float>());
  sampling::SampleRow(team, task, blockIdx.x);
}

}  // namespace

void SampleRowsOnDevice(const SampleRowsTask& task, DeviceStream stream) {
  if (task.num_rows == 0) return;
  const int64_t num_stretches = (task.vocab_size + sampling::kStretch - 1) / sampling::kStretch;
  const auto shared_bytes = static_cast<size_t>(num_stretches) * sizeof(float);
  Launch("draw of tokens", SampleRowsKernel,
         {static_cast<unsigned>(task.num_rows), kThreads, shared_bytes}, stream, task);
}

}  // namespace lathe::worker
