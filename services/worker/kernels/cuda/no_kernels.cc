// Replaces the kernels in builds without CUDA, where no tensor is on a GPU.
#include <stdexcept>

#include "services/worker/kernels/cuda/lora_rows.h"
#include "services/worker/kernels/cuda/paged_attention.h"
#include "services/worker/kernels/cuda/row_kernels.h"
#include "services/worker/kernels/cuda/sample_rows.h"

namespace lathe::worker {
namespace {

[[noreturn]] void Refuse() { throw std::logic_error("this is a build without CUDA"); }

}  // namespace

void SampleRowsOnDevice(const SampleRowsTask&, DeviceStream) { Refuse(); }

void AddLoraRowsOnDevice(const LoraRowsTask&, DeviceStream) { Refuse(); }

bool HasPagedAttention(const PagedShape&) { return false; }

PagedWorkspaceSizes PagedWorkspaceFor(const PagedShape&, const PagedRows&, bool, DeviceStream) {
  Refuse();
}

PagedPlan PlanPagedAttention(const PagedShape&, const PagedRows&, bool, const PagedWorkspaceSizes&,
                             void*, void*, DeviceStream) {
  Refuse();
}

void AttendPages(const PagedAttentionTask&, const PagedPlan&, DeviceStream) { Refuse(); }

void RmsNormOnDevice(const RmsNormDeviceTask&, DeviceStream) { Refuse(); }

void RmsNormBackwardOnDevice(const RmsNormBackwardDeviceTask&, DeviceStream) { Refuse(); }

void GatedActivationOnDevice(const GatedActivationDeviceTask&, DeviceStream) { Refuse(); }

void GatedActivationBackwardOnDevice(const GatedActivationDeviceTask&, DeviceStream) { Refuse(); }

void PrepareHeadsOnDevice(const PrepareHeadsDeviceTask&, DeviceStream) { Refuse(); }

void PrepareHeadsBackwardOnDevice(const PrepareHeadsDeviceTask&, DeviceStream) { Refuse(); }

void PrepareAndWrite(const PrepareAndWriteTask&, DeviceStream) { Refuse(); }

}  // namespace lathe::worker
