// Collectives between ranks that are threads of one process, for tests.
#pragma once

#include <memory>
#include <vector>

#include "services/worker/collectives/collectives.h"

namespace lathe::worker {

// Returns the communicators of all `world` ranks of sub-mesh `axis`, one for each thread. Sums are
// in rank order and equal to those over Gloo to the bit. Destroying a communicator simulates the
// death of its rank: the others' calls fail. If the ranks' calls differ, they fail too and the
// error shows the difference.
std::vector<std::unique_ptr<Collectives>> MakeLocalCollectives(const std::string& axis, int world,
                                                               const CollectivesOptions& options,
                                                               FlightRecorder& recorder);

}  // namespace lathe::worker
