// One outcome for all ranks of what each tries by itself, such as reading a file.
#pragma once

#include "absl/status/status.h"
#include "services/worker/collectives/rank_group.h"

namespace lathe::worker {

// OK if it is on every rank. Else this rank's own error, or where it has none, the code of the
// first rank that has one, whose log says why. All ranks call it.
absl::Status AgreeOn(const absl::Status& own, const RankGroup& all);

}  // namespace lathe::worker
