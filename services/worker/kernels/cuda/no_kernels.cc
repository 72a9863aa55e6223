// In place of the kernels in builds without CUDA, where no tensor lies on a GPU.
#include <stdexcept>

#include "services/worker/kernels/cuda/draw_rows.h"

namespace lathe::worker {
namespace {

[[noreturn]] void Refuse() { throw std::logic_error("this is a build without CUDA"); }

}  // namespace

void DrawRowsOnDevice(const DrawRowsTask&, DeviceStream) { Refuse(); }

}  // namespace lathe::worker
