// Collectives between ranks that are processes without GPUs, on one machine or several.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"
#include "services/worker/collectives/transports/gloo_collectives.h"

namespace lathe::worker {

// Connects the ranks of `place` over shared memory if all of them can share it, else over Gloo.
// Both give the same bits. See ConnectGloo for the rest.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectCpus(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

}  // namespace lathe::worker
