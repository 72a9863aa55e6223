// Ranks as processes without GPUs, whatever joins their machines.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/collectives/gloo_collectives.h"
#include "services/worker/collectives/rendezvous.h"

namespace lathe::worker {

// Over memory that the ranks of `place` share, where they do; else over Gloo. Both give the same
// bits. See ConnectGloo for the rest.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectCpus(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

}  // namespace lathe::worker
