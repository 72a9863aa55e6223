// Collectives over each transport: shared memory, Gloo, NCCL, and threads of one process. Every
// rank of `place` calls a Connect function, for the same communicators in the same order.
// `recorder` must outlive the result; the rendezvous need not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"

namespace gloo::transport {
class Device;
}

namespace lathe::worker {

// Connects processes without GPUs: over shared memory if all of them can share it, else over Gloo.
// Both give the same bits.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectCpus(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

// Connects processes of one host over shared memory, which does what Gloo does without the kernel's
// network stack. Small messages take microseconds, which a decode pass of many layers needs.
//
// Sums are in rank order and equal to those over Gloo to the bit. When the process of a rank ends,
// the others' calls fail within 10 ms. They also fail when a rank calls another collective.
// Starting an all-gather completes it.
//
// FailedPrecondition on all ranks, with the reason, if one of them cannot map rank 0's memory: it
// is on another host, or in a container with other process ids. Unavailable: a rank does not
// arrive.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectSharedMemory(Rendezvous& rendezvous,
                                                                 const SubMesh& place,
                                                                 const CollectivesOptions& options,
                                                                 FlightRecorder& recorder);

// Opens the listening end of a process for c10d's Gloo. One device serves all its communicators,
// with one Gloo thread that moves their bytes. `address` belongs to the interface that the other
// ranks reach. The process ignores SIGPIPE from this call on. InvalidArgument as for LocalAddress.
// FailedPrecondition: it is not an address of this machine.
absl::StatusOr<std::shared_ptr<gloo::transport::Device>> OpenGlooDevice(const std::string& address);

// Connects processes without GPUs over Gloo. Unavailable: a rank does not connect within
// `options.timeout`.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectGloo(
    Rendezvous& rendezvous, std::shared_ptr<gloo::transport::Device> device, const SubMesh& place,
    const CollectivesOptions& options, FlightRecorder& recorder);

// Connects processes that have a GPU each over NCCL. A build without CUDA returns Unimplemented.
//
// Calls are queued on torch's current stream of the GPU and may be captured into CUDA graphs, which
// Replay replays. The deadline of a call or a replay runs from when the stream reaches it, because
// the other ranks do not cause earlier work on the stream. When it expires, or NCCL reports an
// error, a thread of the communicator calls on_failure. If on_failure returns, that thread aborts
// the communicator, which releases all threads that wait for the stream.
//
// Sums are in NCCL's order. All ranks get the same bits, but they differ from those of other
// numbers of ranks and of CPUs. NCCL connects over the interface that NCCL_SOCKET_IFNAME names.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectNccl(Rendezvous& rendezvous, at::Device gpu,
                                                         const SubMesh& place,
                                                         const CollectivesOptions& options,
                                                         FlightRecorder& recorder);

// Returns the communicators of all `world` ranks of sub-mesh `axis`, one for each thread of a test.
// Sums are in rank order and equal to those over Gloo to the bit. Destroying a communicator
// simulates the death of its rank: the others' calls fail. If the ranks' calls differ, they fail
// too and the error shows the difference.
std::vector<std::unique_ptr<Collectives>> MakeLocalCollectives(const std::string& axis, int world,
                                                               const CollectivesOptions& options,
                                                               FlightRecorder& recorder);

}  // namespace lathe::worker
