// A pass whose rows several ranks share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/models/model.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/train_pass.h"

namespace lathe::worker {

// Which of `num_ranks` ranks computes each row of a micro-batch, by place in it: about as many
// tokens as any other, longest rows first. With Numerics::kExact the number of the datum and its
// request's decide, and no neighbour.
std::vector<int> DealRows(const MicroBatch& micro_batch, Numerics numerics, int num_ranks);

// ShapeOf the micro-batch, with the rows of the rank that has most.
PassShape LargestShare(const MicroBatch& micro_batch, const std::vector<int>& rank_of_row);

// The TrainPass of one rank's rows. All ranks of `data` make the same calls and are at the same
// step at the same time, also one that has nothing to do in it (Model::BeginStep).
// They end with the same results, failures or exception. Gradients stay what each rank computed. A
// rank alone: a TrainPass of all rows.
class RankPass {
 public:
  // `model`, the jobs and what `data` stands for must outlive it.
  RankPass(const Model& model, const MicroBatch& micro_batch, const std::vector<int>& rank_of_row,
           const TrainPassOptions& options, const RankGroup& data);

  // As TrainPass has them, but with several ranks all exceptions come with the last step.
  bool RunUnit();
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const {
    return pass_->failures();
  }
  void Commit() { pass_->Commit(); }

 private:
  // The steps of the rank that has most of each kind.
  std::vector<ModelStep> AgreeOnSteps(int64_t num_checkpointed) const;
  // Runs `body` unless something was thrown before; keeps what it throws.
  template <typename Body>
  void Try(const Body& body);
  // Throws on all ranks what one of them has thrown.
  void AgreeOnErrors() const;
  void ExchangeResults();

  const Model& model_;
  const RankGroup data_;
  const std::vector<RowRef> rows_;
  const std::vector<int> rank_of_row_;
  std::unique_ptr<TrainPass> pass_;
  // With several ranks.
  std::vector<ModelStep> steps_;
  size_t next_step_ = 0;
  // Of this rank.
  struct Error {
    bool is_memory = false;
    std::string message;
  };
  std::optional<Error> error_;
};

}  // namespace lathe::worker
