// Operations of torch that exist on GPUs only, for the emulated one.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace lathe::worker {

// Runs `op` if torch has it for GPUs only, and returns whether it did. The arguments on the stack
// are tensors of the host; the results are too.
bool RunGpuOperation(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Makes the linker take the host versions of our kernels (emulated_kernels.cc).
void UseEmulatedKernels();

}  // namespace lathe::worker
