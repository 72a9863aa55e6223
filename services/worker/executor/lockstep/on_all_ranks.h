// Runs work that every rank does for itself, with one outcome for all.
#pragma once

#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "services/worker/collectives/agreement.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/torch/torch_guard.h"

namespace lathe::worker {

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
