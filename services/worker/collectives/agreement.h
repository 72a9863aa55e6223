// One outcome for all ranks of what each of them did for itself.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "services/worker/collectives/collectives.h"

namespace lathe::worker {

// Every rank calls it with how it went here. OK on all of them, or on all of them the error of the
// first rank that has one, whose message begins with that rank ("rank 1: ...") and is cut after
// 1,000 characters. Throws RanksDisagree.
absl::Status AgreeOnStatus(Collectives& ranks, const CollectiveCall& call, const absl::Status& own);

// The smallest of all ranks' numbers. Throws RanksDisagree.
int64_t AgreeOnLeast(Collectives& ranks, const CollectiveCall& call, int64_t own);

// Rank 0's number. Throws RanksDisagree.
int64_t TakeFirst(Collectives& ranks, const CollectiveCall& call, int64_t own);

// How many of the ranks run on this machine, this one included. Throws RanksDisagree.
int64_t NumRanksHere(Collectives& ranks, const CollectiveCall& call);

}  // namespace lathe::worker
