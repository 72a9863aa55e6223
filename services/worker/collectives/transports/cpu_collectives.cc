#include "services/worker/collectives/transports/cpu_collectives.h"

#include <utility>

#include "libs/common/logging/logging.h"
#include "services/worker/collectives/transports/shared_memory_collectives.h"

namespace lathe::worker {

absl::StatusOr<std::unique_ptr<Collectives>> ConnectCpus(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder) {
  auto shared = ConnectSharedMemory(rendezvous, place, options, recorder);
  if (!absl::IsFailedPrecondition(shared.status())) return shared;
  LogInfo("ranks speak over Gloo", {{"reason", shared.status().message()}});
  return ConnectGloo(rendezvous, std::move(device), place, options, recorder);
}

}  // namespace lathe::worker
