// Collectives between ranks that are processes without GPUs, over c10d's Gloo.
#pragma once

#include <memory>

#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"

namespace gloo::transport {
class Device;
}

namespace lathe::worker {

// Opens the listening end of a process. One device serves all its communicators, with one Gloo
// thread that moves their bytes. `address` belongs to the interface that the other ranks reach. The
// process ignores SIGPIPE from this call on. InvalidArgument as for LocalAddress.
// FailedPrecondition: it is not an address of this machine.
absl::StatusOr<std::shared_ptr<gloo::transport::Device>> OpenGlooDevice(const std::string& address);

// Connects the ranks of `place`. Every rank calls it, for the same communicators in the same order.
// `recorder` must outlive the result; the rendezvous need not. Unavailable: a rank does not connect
// within `options.timeout`.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectGloo(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

}  // namespace lathe::worker
