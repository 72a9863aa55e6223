// Ranks wait for work of a rank that takes longer than a collective may.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/collectives/rank_group.h"

namespace lathe::worker {

struct SlowWork {
  std::function<absl::Status()> run;  // on a thread of its own, without tensors
  std::function<void()> cancel;       // makes `run` return soon
  // Grows while this rank's work goes on. It also grows while that of another rank does, so that a
  // rank that waits does not count as stuck.
  std::atomic<int64_t>* progress = nullptr;
  // Pause between two collectives. It must be shorter than their timeout.
  absl::Duration turn = absl::Seconds(2);
};

// Collective: every rank of `ranks` calls it with the same `what`. Runs each rank's work. Returns
// on all ranks once it has ended on all of them, as AgreeOnStatus. Nothing bounds the time but the
// work itself. Throws RanksDisagree when a collective fails, after it has cancelled the work.
absl::Status WaitForAllRanks(const RankGroup& ranks, const char* what, const SlowWork& work);

}  // namespace lathe::worker
