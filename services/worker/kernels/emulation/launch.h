// Launches of kernels on emulated threads. Kernels reach it through cuda_runtime.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "services/worker/kernels/emulation/block.h"

namespace lathe::worker::emulation {

// The order of blocks and threads of later launches is a function of the seed.
void SetSeed(uint64_t seed);

// Errors of launches, with CUDA's codes.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidConfiguration = 9;
inline constexpr int kLaunchFailure = 719;

// A kernel and the addresses of its arguments. `run` calls it, in one thread.
struct KernelCall {
  void (*kernel)();
  void** arguments;
  void (*run)(const KernelCall& call);
};

// Runs every thread of every block, or until the first defect. Returns the error.
int RunGrid(const Extent& grid, const Extent& block, size_t shared_bytes, const KernelCall& call);

// Returns the last error since the last call, if there was one.
int TakeLastError();

// Describes the last error.
const char* LastErrorText();

// Not instrumented, because the arguments lie in memory of the host.
template <typename... Parameters, size_t... kIndex>
__attribute__((no_sanitize("thread"))) void CallKernel(const KernelCall& call,
                                                       std::index_sequence<kIndex...>) {
  reinterpret_cast<void (*)(Parameters...)>(call.kernel)(
      *static_cast<Parameters*>(call.arguments[kIndex])...);
}

template <typename... Parameters>
int LaunchKernel(void (*kernel)(Parameters...), const Extent& grid, const Extent& block,
                 void** arguments, size_t shared_bytes) {
  const auto run = [](const KernelCall& call) {
    CallKernel<Parameters...>(call, std::index_sequence_for<Parameters...>());
  };
  return RunGrid(grid, block, shared_bytes, {reinterpret_cast<void (*)()>(kernel), arguments, run});
}

}  // namespace lathe::worker::emulation
