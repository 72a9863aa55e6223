// Collectives between ranks that have a GPU each, over NCCL.
#pragma once

#include <memory>

#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"

namespace lathe::worker {

// Connects the ranks of `place`, each with its GPU. Every rank calls it, for the same communicators
// in the same order. `recorder` must outlive the result; the rendezvous need not. A build without
// CUDA returns Unimplemented.
//
// Calls are queued on torch's current stream of the GPU and may be captured into CUDA graphs. The
// replay of a graph has no deadline and is not in the recorder. The deadline of a call runs from
// when the stream reaches it, because earlier work on the stream is not the other ranks' fault.
// When it expires, or NCCL reports an error, a thread of the communicator calls on_failure. If
// on_failure returns, that thread aborts the communicator, which releases all threads that wait for
// the stream.
//
// Sums are in NCCL's order. All ranks get the same bits, but they differ from those of other
// numbers of ranks and of CPUs. NCCL connects over the interface that NCCL_SOCKET_IFNAME names.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectNccl(Rendezvous& rendezvous, at::Device gpu,
                                                         const SubMesh& place,
                                                         const CollectivesOptions& options,
                                                         FlightRecorder& recorder);

}  // namespace lathe::worker
