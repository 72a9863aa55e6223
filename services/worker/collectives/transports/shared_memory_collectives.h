// Collectives between ranks that are processes of one host, over shared memory. They do what Gloo
// does without the kernel's network stack. Small messages take microseconds, which a decode pass of
// many layers needs.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous/rendezvous.h"

namespace lathe::worker {

// Connects the ranks of `place`. Every rank calls it. Sums are in rank order and equal to those
// over Gloo to the bit. When the process of a rank ends, the others' calls fail within 10 ms. They
// also fail when a rank calls another collective. Starting an all-gather completes it.
//
// FailedPrecondition on all ranks, with the reason, if one of them cannot map rank 0's memory: it
// is on another host, or in a container with other process ids. Unavailable: a rank does not
// arrive. `recorder` must outlive the result; the rendezvous need not.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectSharedMemory(Rendezvous& rendezvous,
                                                                 const SubMesh& place,
                                                                 const CollectivesOptions& options,
                                                                 FlightRecorder& recorder);

}  // namespace lathe::worker
