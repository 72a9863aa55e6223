// Replaces device_stream_cuda.cc in builds without CUDA.
#include "services/worker/layers/device_stream.h"

namespace lathe::worker {

DeviceStream CurrentStream(at::Device device) {
  // The GPU that tests emulate computes in the order of the calls and needs no stream.
  TORCH_CHECK(device.is_privateuseone(), "no stream of ", device, ": this is a build without CUDA");
  return nullptr;
}

}  // namespace lathe::worker
