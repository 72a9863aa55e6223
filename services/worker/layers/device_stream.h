// Where kernels of ours on a GPU queue up: behind torch's.
#pragma once

#include "services/worker/aten.h"
#include "services/worker/kernels/cuda/stream.h"

namespace lathe::worker {

// Torch's current stream of a GPU. Throws in a build without CUDA.
DeviceStream CurrentStream(at::Device device);

}  // namespace lathe::worker
