// Settings of torch's allocator and NCCL, which read them from the environment when a GPU is first
// used. Does not include torch.
#pragma once

#include <cstdlib>

namespace lathe::worker {

// Sets what the user's environment leaves open. Call it before threads start.
inline void SetGpuEnvironment() {
  // The older name has priority in torch.
  if (getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) {
    // Micro-batches of ever other sizes would cut memory into pieces that fit no later one.
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  }
  // NCCL registers the buffers of recorded collectives as single allocations. An expandable segment
  // is none, and a replay with peer-to-peer transfers would hang.
  setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  // FSDP gathers weights on a stream of its own while tp sums on another. In any other than the
  // program's order, two ranks could each wait for the other's kernel.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  // Connects all algorithms when a communicator is made. Otherwise the first call of each connects
  // inside its own deadline, or while a decode pass is recorded.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

}  // namespace lathe::worker
