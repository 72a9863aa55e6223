// Replaces device_stream_cuda.cc in builds without CUDA.
#include "services/worker/layers/device_stream.h"

namespace lathe::worker {

DeviceStream CurrentStream(at::Device device) {
  TORCH_CHECK(false, "no stream of ", device, ": this is a build without CUDA");
}

}  // namespace lathe::worker
