// Which devices are GPUs.
#pragma once

#include <c10/core/Device.h>

namespace lathe::worker {

// Returns true for an NVIDIA GPU. True also for torch's PrivateUse1, the device type of the GPU
// that tests emulate (testing/emulated_gpu); no option selects it. All code that chooses between a
// GPU's way and another asks here or Device::is_cpu().
inline bool IsGpu(at::Device device) { return device.is_cuda() || device.is_privateuseone(); }

}  // namespace lathe::worker
