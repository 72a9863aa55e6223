// Checks after CUDA calls and kernel launches.
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

namespace lathe::worker {

inline void CheckCuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline void CheckLaunch(const char* kernel) { CheckCuda(cudaGetLastError(), kernel); }

}  // namespace lathe::worker
