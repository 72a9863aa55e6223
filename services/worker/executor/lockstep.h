// How several ranks come to apply the same things before the same units.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/executor/executor_item.h"
#include "services/worker/executor/recovery_files.h"
#include "services/worker/executor/time_share.h"
#include "services/worker/executor/turn.h"
#include "services/worker/executor/version_files.h"

namespace lathe::worker {

// An ExecutorCore is a function of what it applies, in which order, and of whose unit is next. Rank
// 0 decides that, turn by turn; the others do the same. What a rank does for itself between,
// reading a file, is applied when all have said that it is done, and if it failed on one, it failed
// on all. Only later jobs wait for it.
//
// Every turn all ranks compare what they are; those that are not the same must end. One thread, but
// for the queue.
class Lockstep {
 public:
  struct Options {
    // Between two turns without work. Short against all deadlines, long against a turn's cost.
    absl::Duration idle = absl::Seconds(1);
    // The same while another rank has still to do what rank 0 has done: nobody can wake that one.
    absl::Duration poll = absl::Milliseconds(5);
    // What a command was encoded from. Not used on rank 0.
    std::function<absl::StatusOr<Command>(const std::string& encoded)> decode;
  };

  // What a rank has come to.
  struct Standing {
    int64_t generation = 0;
    // The same on all ranks.
    uint64_t fingerprint = 0;
    // Nothing is left to do; the next turn may take its time.
    bool is_idle = false;
    DeviceUse preferred = DeviceUse::kSampling;  // rank 0's counts
    bool wants_to_stop = false;
  };

  struct Turn {
    std::vector<ExecutorItem> items;
    DeviceUse preferred = DeviceUse::kSampling;
  };

  // Rank 0's commands and the jobs that are done come from `queue`. Both must outlive it.
  Lockstep(const RankGroup& control, BoundedQueue<ExecutorItem>& queue, Options options);

  // In place of the threads that do the jobs, whose results go to the queue; they must outlive it.
  // Neither refuses a job, as that would depend on when others were done: one that there is no room
  // for fails later.
  VersionJobs& VersionsBy(VersionJobs& jobs);
  RecoveryJobs& RecoveryBy(RecoveryJobs& jobs);

  // The next turn, once all ranks are there. nullopt: a rank wants to stop; all end here. Throws
  // RanksDisagree.
  std::optional<Turn> Next(const Standing& standing);

 private:
  struct Header;

  // Jobs of one generation, numbered in the order in which all ranks want them.
  class Versions : public VersionJobs {
   public:
    explicit Versions(Lockstep& lockstep) : lockstep_(lockstep) {}
    absl::Status Enqueue(VersionJob job) override;
    // One is done here; nothing if nobody waits for it any more.
    void Note(VersionJobDone done);
    // All jobs up to this one are done here; 0 of another generation.
    int64_t num_done(int64_t generation) const { return generation == generation_ ? num_done_ : 0; }
    // The first of those up to `last` that were noted and not taken; nullopt: none.
    std::optional<VersionJobDone> TakeUpTo(int64_t last);
    // nullopt: it was not noted.
    std::optional<VersionJobDone> Take(int64_t ticket);
    VersionJobs* thread = nullptr;

   private:
    Lockstep& lockstep_;
    int64_t generation_ = 0;
    int64_t num_jobs_ = 0;
    int64_t num_done_ = 0;
    std::map<int64_t, int64_t> numbers_;      // by ticket, of what is not done
    std::map<int64_t, VersionJobDone> done_;  // by number
  };

  class Recovery : public RecoveryJobs {
   public:
    explicit Recovery(Lockstep& lockstep) : lockstep_(lockstep) {}
    absl::Status Enqueue(RecoveryJob job) override;
    RecoveryJobs* thread = nullptr;   // rank 0
    std::deque<RecoveryJob> waiting;  // the others: what rank 0 writes
    int64_t num_jobs = 0;

   private:
    Lockstep& lockstep_;
  };

  bool leads() const { return control_.rank() == 0; }
  std::vector<ExecutorItem> Collect(const Standing& standing);
  void CollectVersionJobs(std::vector<ExecutorItem>& items);
  void NoteVersionJobs();
  std::optional<ExecutorItem> TakeItem(absl::Duration patience);
  std::vector<Header> Meet(const Standing& standing, int64_t num_bytes);
  std::string Forward(std::string encoded, int64_t num_bytes);
  std::vector<ExecutorItem> Follow(const std::string& encoded, int64_t generation);
  VersionJobDone FinishVersionJob(int64_t ticket);
  RecoveryJobDone FinishRecoveryJob(int64_t generation, const TurnRecoveryJob& written);
  void AgreeOnVersionJobs(std::vector<ExecutorItem>& items);

  const RankGroup control_;
  BoundedQueue<ExecutorItem>& queue_;
  const Options options_;
  Versions versions_{*this};
  Recovery recovery_{*this};
  std::deque<ExecutorItem> refused_;  // jobs that there was no room for
  // Version jobs up to this one are done on all ranks, as of the last turn.
  int64_t num_done_everywhere_ = 0;
  int64_t num_turns_ = 0;
};

}  // namespace lathe::worker
