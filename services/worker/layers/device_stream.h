// The GPU stream on which our kernels run: the same as torch's.
#pragma once

#include "services/worker/kernels/cuda/stream.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Returns torch's current stream of a GPU. Throws in a build without CUDA.
DeviceStream CurrentStream(at::Device device);

}  // namespace lathe::worker
