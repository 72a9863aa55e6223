// Ranks as processes of one host, over memory that they share: what Gloo does, without a kernel
// between them. Small messages take microseconds, which a decode pass of many layers needs.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/worker/collectives/collectives.h"
#include "services/worker/collectives/rendezvous.h"

namespace lathe::worker {

// Connects the ranks of `place`; each of them calls it. Sums are in the order of the ranks, as
// GlooCollectives' are, to the same bits. A rank whose process ends, however, fails the others'
// calls within 10 ms; so does one that calls another collective. An all-gather that is started is
// done at once.
//
// FailedPrecondition on all of them, with the reason, if one cannot see rank 0's memory: they are
// on different hosts, or in containers of different process ids. Unavailable if one does not come.
// `recorder` must outlive the result, the rendezvous need not.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectSharedMemory(Rendezvous& rendezvous,
                                                                 const SubMesh& place,
                                                                 const CollectivesOptions& options,
                                                                 FlightRecorder& recorder);

}  // namespace lathe::worker
