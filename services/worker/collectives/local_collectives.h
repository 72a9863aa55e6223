// Ranks as threads of one process, for tests.
#pragma once

#include <memory>
#include <vector>

#include "services/worker/collectives/collectives.h"

namespace lathe::worker {

// The communicators of a whole sub-mesh "AXIS" of `world` ranks, for a thread each. Sums are in the
// order of the ranks, as GlooCollectives' are, to the same bits. One that is destroyed is a rank
// that died: the others' calls fail. So do those of ranks that do not call the same, with the
// difference.
std::vector<std::unique_ptr<Collectives>> MakeLocalCollectives(const std::string& axis, int world,
                                                               const CollectivesOptions& options,
                                                               FlightRecorder& recorder);

}  // namespace lathe::worker
