#include "services/worker/collectives/slow_agreement.h"

#include "absl/synchronization/notification.h"
#include "libs/common/concurrency/named_thread.h"
#include "services/worker/collectives/agreement.h"

namespace lathe::worker {
namespace {

// Reports of all ranks in one turn.
struct Turn {
  bool all_done = false;
  bool any_moved = false;
};

Turn TakeTurn(const RankGroup& ranks, const char* what, bool is_done, bool has_moved) {
  const at::Tensor own = at::zeros({2}, at::kLong);
  own.mutable_data_ptr<int64_t>()[0] = is_done ? 1 : 0;
  own.mutable_data_ptr<int64_t>()[1] = has_moved ? 1 : 0;
  const at::Tensor all = ranks.Gather(what, own);
  return {.all_done = all.select(1, 0).min().item<int64_t>() == 1,
          .any_moved = all.select(1, 1).max().item<int64_t>() == 1};
}

void TakeTurns(const RankGroup& ranks, const char* what, const SlowWork& work,
               const absl::Notification& done) {
  int64_t seen = *work.progress;
  for (;;) {
    done.WaitForNotificationWithTimeout(work.turn);
    const int64_t now = *work.progress;
    const Turn turn = TakeTurn(ranks, what, done.HasBeenNotified(), now != seen);
    if (turn.all_done) return;
    seen = now;
    if (!turn.any_moved) continue;
    ++*work.progress;
    ++seen;  // what others did must not look like this rank's work to them
  }
}

}  // namespace

absl::Status WaitForAllRanks(const RankGroup& ranks, const char* what, const SlowWork& work) {
  if (ranks.is_alone()) return work.run();
  absl::Status status;
  absl::Notification done;
  {
    const NamedThread thread("fetch", [&] {
      status = work.run();
      done.Notify();
    });
    try {
      TakeTurns(ranks, what, work, done);
    } catch (const RanksDisagree&) {
      work.cancel();
      throw;
    }
  }
  return AgreeOnStatus(ranks, what, status);
}

}  // namespace lathe::worker
