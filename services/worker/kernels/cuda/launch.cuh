// Launches of kernels, their dynamic shared memory, and checks after CUDA calls.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

#include <cuda_runtime.h>

namespace lathe::worker {

inline void CheckCuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Grid and block of a launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // of DynamicShared()
};

// Launches a kernel; `what` begins the message of an error. Calls the function that kernel<<<…>>>()
// stands for, because g++ compiles these files for the emulation and cannot parse that form.
template <typename... Parameters>
void Launch(const char* what, void (*kernel)(Parameters...), const LaunchShape& shape,
            cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  void* addresses[] = {&arguments...};
  static_cast<void>(
      cudaLaunchKernel(kernel, shape.grid, shape.block, addresses, shape.shared_bytes, stream));
  CheckCuda(cudaGetLastError(), what);
}

// Returns the shared memory of the block whose size the launch gives.
template <typename T>
__device__ T* DynamicShared() {
  alignas(16) extern __shared__ char dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace lathe::worker
