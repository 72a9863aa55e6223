// Twin of CUDA's header of this name, for g++: what Lathe's kernels use of the language and of the
// runtime. Device code runs on emulated threads (../block.h). A defect that the emulation finds is
// the error of the launch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <utility>

#include "services/worker/kernels/emulation/block.h"
#include "services/worker/kernels/emulation/launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks run one after another on one thread. In a function, such a variable is static.
#define __shared__ thread_local

using uint3 = lathe::worker::emulation::Index;
using dim3 = lathe::worker::emulation::Extent;
using cudaStream_t = struct CUstream_st*;

inline const uint3& threadIdx = lathe::worker::emulation::indices.thread;
inline const uint3& blockIdx = lathe::worker::emulation::indices.block;
inline const dim3& blockDim = lathe::worker::emulation::indices.block_dim;
inline const dim3& gridDim = lathe::worker::emulation::indices.grid_dim;

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  lathe::worker::emulation::WaitForBlock(where);
}

inline void __syncwarp(unsigned lanes = 0xffffffffu,
                       std::source_location where = std::source_location::current()) {
  lathe::worker::emulation::WaitForWarp(lanes, where);
}

namespace lathe::worker::emulation {

template <typename T>
T ExchangeNumber(unsigned lanes, T value, int from_lane, const std::source_location& where) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as in CUDA");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(lanes, bits, from_lane, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace lathe::worker::emulation

template <typename T>
T __shfl_sync(unsigned lanes, T value, int from,
              std::source_location where = std::source_location::current()) {
  return lathe::worker::emulation::ExchangeNumber(lanes, value, from % 32, where);
}

template <typename T>
T __shfl_xor_sync(unsigned lanes, T value, int lane_mask,
                  std::source_location where = std::source_location::current()) {
  const int from = lathe::worker::emulation::Lane() ^ lane_mask;
  return lathe::worker::emulation::ExchangeNumber(lanes, value, from, where);
}

// Lanes without a source keep their own value.
template <typename T>
T __shfl_down_sync(unsigned lanes, T value, unsigned delta,
                   std::source_location where = std::source_location::current()) {
  const int lane = lathe::worker::emulation::Lane();
  const int from = lane + static_cast<int>(delta);
  return lathe::worker::emulation::ExchangeNumber(lanes, value, from < 32 ? from : lane, where);
}

template <typename T>
T __shfl_up_sync(unsigned lanes, T value, unsigned delta,
                 std::source_location where = std::source_location::current()) {
  const int lane = lathe::worker::emulation::Lane();
  const int from = lane - static_cast<int>(delta);
  return lathe::worker::emulation::ExchangeNumber(lanes, value, from >= 0 ? from : lane, where);
}

inline int atomicAdd(int* address, int value) {
  return lathe::worker::emulation::AtomicAdd(address, value);
}

// On a GPU this is an approximation with a relative error of up to 2^-22.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719
};

// Runs the kernel to its end.
template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), const dim3& grid, const dim3& block,
                             void** arguments, size_t shared_bytes, cudaStream_t) {
  return static_cast<cudaError_t>(
      lathe::worker::emulation::LaunchKernel(kernel, grid, block, arguments, shared_bytes));
}

// Returns the error of the launches since the last call.
inline cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(lathe::worker::emulation::TakeLastError());
}

inline const char* cudaGetErrorString(cudaError_t) {
  return lathe::worker::emulation::LastErrorText();
}
