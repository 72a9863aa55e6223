// Makes several ranks apply the same items before the same units.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "libs/common/concurrency/bounded_queue.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/executor/lockstep/lockstep_round.h"
#include "services/worker/executor/planning/time_share.h"
#include "services/worker/executor/saves/checkpoint_writer.h"
#include "services/worker/executor/versions/recovery_files.h"
#include "services/worker/executor/versions/version_files.h"
#include "services/worker/ops/commands.h"

namespace lathe::worker {

struct SubmittedCommand {
  Command command;
  std::string encoded;  // for the other ranks
};

struct ResetItem {
  int64_t generation = 0;
};

using ExecutorItem =
    std::variant<SubmittedCommand, ResetItem, VersionJobDone, RecoveryJobDone, SaveWritten>;

// The result of an ExecutorCore depends only on the items it applies, their order, and whose unit
// is next. Rank 0 decides these in rounds, and the other ranks follow. Work that each rank does for
// itself between rounds, such as reading a file, is a job. Its result is applied when all ranks
// have finished it. A job that failed on one rank has failed on all. An unfinished job delays only
// later jobs.
//
// In every round, all ranks compare their fingerprints. Ranks that differ must end. Use it from one
// thread; only the queue is shared with others.
class Lockstep {
 public:
  struct Options {
    // Time between two rounds without work. Short compared with all deadlines, long compared with a
    // round's cost.
    absl::Duration idle = absl::Seconds(1);
    // Replaces `idle` while another rank has not finished a job that rank 0 has finished, because
    // that rank cannot wake rank 0.
    absl::Duration poll = absl::Milliseconds(5);
    // Decodes a command from its `encoded`. Not used on rank 0.
    std::function<absl::StatusOr<Command>(const std::string& encoded)> decode;
  };

  // A rank's state at the end of a round.
  struct RankState {
    int64_t generation = 0;
    // Must be the same on all ranks.
    uint64_t fingerprint = 0;
    // True if there is nothing left to do, so that the next round may wait.
    bool is_idle = false;
    DeviceUse preferred = DeviceUse::kSampling;  // only rank 0's value is used
    bool wants_to_stop = false;
  };

  struct Round {
    std::vector<ExecutorItem> items;
    DeviceUse preferred = DeviceUse::kSampling;
  };

  // Rank 0's commands and the results of jobs come from `queue`. The communicator of `control` and
  // `queue` must outlive this object.
  Lockstep(const RankGroup& control, BoundedQueue<ExecutorItem>& queue, Options options);

  // Return the object to which the executor gives its jobs in place of `jobs`, the thread that does
  // them. The thread puts its results into the queue and must outlive this object. The returned
  // object refuses no job, because a refusal would depend on other ranks' progress. A job without
  // room fails later.
  VersionJobs& VersionsBy(VersionJobs& jobs);
  RecoveryJobs& RecoveryBy(RecoveryJobs& jobs);

  // Waits for all ranks and returns the next round. nullopt: a rank wants to stop, and all ranks
  // end here. Throws RanksDisagree.
  std::optional<Round> Next(const RankState& rank_state);

 private:
  struct Header;

  // Jobs of one generation, numbered in the order of Enqueue, which is the same on all ranks.
  class Versions : public VersionJobs {
   public:
    explicit Versions(Lockstep& lockstep) : lockstep_(lockstep) {}
    absl::Status Enqueue(VersionJob job) override;
    // Records a job that is done on this rank. Ignores it if its generation or ticket is not
    // current.
    void Record(VersionJobDone done);
    // Number of the last job up to which all jobs are done on this rank. 0 for another generation.
    int64_t num_done(int64_t generation) const { return generation == generation_ ? num_done_ : 0; }
    // Returns the first recorded job, if its number is at most `last`; nullopt: none.
    std::optional<VersionJobDone> TakeUpTo(int64_t last);
    // Returns the recorded job; nullopt: it is not recorded.
    std::optional<VersionJobDone> Take(int64_t ticket);
    VersionJobs* thread = nullptr;

   private:
    Lockstep& lockstep_;
    int64_t generation_ = 0;
    int64_t num_jobs_ = 0;
    int64_t num_done_ = 0;
    std::map<int64_t, int64_t> numbers_;      // by ticket; jobs that are not done
    std::map<int64_t, VersionJobDone> done_;  // by number
  };

  class Recovery : public RecoveryJobs {
   public:
    explicit Recovery(Lockstep& lockstep) : lockstep_(lockstep) {}
    absl::Status Enqueue(RecoveryJob job) override;
    RecoveryJobs* thread = nullptr;   // rank 0 only
    std::deque<RecoveryJob> waiting;  // other ranks only: jobs that rank 0 writes
    int64_t num_jobs = 0;

   private:
    Lockstep& lockstep_;
  };

  bool leads() const { return control_.rank() == 0; }
  std::vector<ExecutorItem> Collect(const RankState& rank_state);
  void CollectVersionJobs(std::vector<ExecutorItem>& items);
  void RecordVersionJobs();
  std::optional<ExecutorItem> TakeItem(absl::Duration patience);
  std::vector<Header> ExchangeHeaders(const RankState& rank_state, int64_t num_bytes);
  std::string Forward(std::string encoded, int64_t num_bytes);
  std::vector<ExecutorItem> Follow(const std::string& encoded, int64_t generation);
  VersionJobDone FinishVersionJob(int64_t ticket);
  RecoveryJobDone FinishRecoveryJob(int64_t generation, const RoundRecoveryJob& written);
  void AgreeOnVersionJobs(std::vector<ExecutorItem>& items);

  const RankGroup control_;
  BoundedQueue<ExecutorItem>& queue_;
  const Options options_;
  Versions versions_{*this};
  Recovery recovery_{*this};
  std::deque<ExecutorItem> refused_;  // results of jobs that found no room
  // Version jobs up to this number are done on all ranks, as of the last round.
  int64_t num_done_everywhere_ = 0;
  int64_t num_rounds_ = 0;
};

}  // namespace lathe::worker
