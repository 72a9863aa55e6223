// Ranks as GPUs, over NCCL.
#pragma once

#include <memory>

#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous.h"

namespace lathe::worker {

// Connects the ranks of `place`, each with its GPU; each of them calls it, each with the same
// communicators in the same order. `recorder` must outlive the result, the rendezvous need not. A
// build without CUDA answers Unimplemented.
//
// Calls are queued on torch's current stream of the GPU and may be recorded into CUDA graphs; what
// a graph replays later has no deadline and is in no dump. A deadline runs from when the stream has
// come to the call: what the stream has to do before is not the other ranks' fault. When it is
// over, or NCCL tells of an error, a thread of the communicator calls on_failure; if that returns,
// it aborts the communicator, which frees whoever waits for the stream.
//
// Sums are in NCCL's order: the same bits on all ranks, not those of other numbers of ranks or of
// CPUs. NCCL's connections are made over the interface that NCCL_SOCKET_IFNAME names; main sets it
// before any thread runs.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectNccl(Rendezvous& rendezvous, at::Device gpu,
                                                         const SubMesh& place,
                                                         const CollectivesOptions& options,
                                                         FlightRecorder& recorder);

}  // namespace lathe::worker
