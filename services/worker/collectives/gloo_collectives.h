// Ranks as processes without GPUs, over c10d's Gloo.
#pragma once

#include <memory>

#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous.h"

namespace gloo::transport {
class Device;
}

namespace lathe::worker {

// The listening end of a process: one for all its communicators, with one thread of Gloo's that
// moves their bytes. `address` is of the interface that the other ranks reach. The process ignores
// SIGPIPE from then on. InvalidArgument as LocalAddress; FailedPrecondition: not this machine's.
absl::StatusOr<std::shared_ptr<gloo::transport::Device>> OpenGlooDevice(const std::string& address);

// Connects the ranks of `place`; each of them calls it, each with the same communicators in the
// same order. `recorder` must outlive the result, the rendezvous need not. Unavailable if one does
// not come in `options.timeout`.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectGloo(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

}  // namespace lathe::worker
