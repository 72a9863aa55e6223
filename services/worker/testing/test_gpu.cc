#include "services/worker/testing/test_gpu.h"

namespace lathe::worker {

at::Device TestGpu() { return {at::kCUDA, 0}; }

bool HasGpu() {
  if (at::hasCUDA()) return true;
  WARN("no GPU here: not run");
  return false;
}

}  // namespace lathe::worker
