// One outcome for all ranks of what each of them did for itself.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "services/worker/collectives/rank_group.h"

namespace lathe::worker {

// Every rank of `ranks` calls these, and they throw RanksDisagree; a rank alone agrees with itself.

// OK if that is how it went on all ranks. Else, on all of them, the error of the first rank that
// has one; its message begins with that rank ("rank 1: ...") and ends after 1,000 characters. Its
// payloads stay with that rank.
absl::Status AgreeOnStatus(const RankGroup& ranks, std::string_view name, const absl::Status& own);

// The smallest of all ranks' numbers.
int64_t AgreeOnLeast(const RankGroup& ranks, std::string_view name, int64_t own);

// Rank 0's number.
int64_t TakeFirst(const RankGroup& ranks, std::string_view name, int64_t own);

// How many of the ranks run on this machine, this one included.
int64_t NumRanksHere(const RankGroup& ranks, std::string_view name);

}  // namespace lathe::worker
