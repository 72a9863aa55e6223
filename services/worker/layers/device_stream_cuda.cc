#include <c10/cuda/CUDAStream.h>

#include "services/worker/layers/device_stream.h"

namespace lathe::worker {

DeviceStream CurrentStream(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

}  // namespace lathe::worker
