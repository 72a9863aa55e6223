// Ranks agree on one outcome of work that each of them did for itself, and share texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/torch/aten.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

// Collective: every rank of `ranks` calls these functions, with the same `name`. They throw
// RanksDisagree when the collective fails. With one rank no collective runs.

// Returns OK on every rank if `own` is OK on all of them. Otherwise every rank gets the error of
// the first rank that has one. Its message begins with that rank ("rank 1: ...") and is cut after
// 1,000 characters. Payloads of the error are returned on that rank only.
absl::Status AgreeOnStatus(const RankGroup& ranks, std::string_view name, const absl::Status& own);

// Returns the minimum over all ranks.
int64_t AgreeOnLeast(const RankGroup& ranks, std::string_view name, int64_t own);

// Returns rank 0's value.
int64_t TakeFirst(const RankGroup& ranks, std::string_view name, int64_t own);

// Returns the number of ranks that run on this machine, this one included.
int64_t NumRanksHere(const RankGroup& ranks, std::string_view name);

// Returns the ranks' texts in rank order. Makes two all-gathers. `device` is the device of the
// group's tensors.
std::vector<std::string> GatherTexts(const RankGroup& group, const CollectiveCall& call,
                                     const std::string& text, at::Device device);

// Returns the result of `body`, a function that returns a Status or StatusOr. If it failed on any
// rank, every rank gets the first rank's error. Exceptions are errors, as in Guarded. Throws
// RanksDisagree.
template <typename Body>
std::invoke_result_t<Body> OnAllRanks(const RankGroup& ranks, const char* what, Body&& body) {
  std::invoke_result_t<Body> result = Guarded(what, std::forward<Body>(body));
  if constexpr (std::is_same_v<std::invoke_result_t<Body>, absl::Status>) {
    return AgreeOnStatus(ranks, what, result);
  } else {
    absl::Status agreed = AgreeOnStatus(ranks, what, result.status());
    if (!agreed.ok()) return agreed;
    return result;
  }
}

}  // namespace lathe::worker
