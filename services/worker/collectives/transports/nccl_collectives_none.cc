// Replaces nccl_collectives.cc in builds without CUDA.
#include "services/worker/collectives/transports/transports.h"

namespace lathe::worker {

absl::StatusOr<std::unique_ptr<Collectives>> ConnectNccl(Rendezvous&, at::Device, const SubMesh&,
                                                         const CollectivesOptions&,
                                                         FlightRecorder&) {
  return absl::UnimplementedError("ranks on GPUs need NCCL: this is a build without CUDA");
}

}  // namespace lathe::worker
