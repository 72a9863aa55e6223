// A pass whose rows are divided over several ranks.
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

// Returns the rank of each row, by index in the micro-batch. Assigns the longest rows first, each
// to the rank with fewest tokens. With Numerics::kExact the rank depends only on seq_id and datum
// index, not on other rows.
std::vector<int> DealRows(const MicroBatch& micro_batch, Numerics numerics, int num_ranks);

// Returns ShapeOf the micro-batch, with the largest token and entry counts of a rank.
PassShape LargestShare(const MicroBatch& micro_batch, const std::vector<int>& rank_of_row);

// The TrainPass of one rank's rows. All ranks of `data` make the same calls and run the same steps,
// also a rank without work in a step (Model::BeginStep). All end with the same results, failures or
// exception. Gradients remain each rank's own. A single rank runs a TrainPass of all rows.
class RankPass {
 public:
  // `model`, the jobs and the collectives of `data` must outlive it.
  RankPass(const Model& model, const MicroBatch& micro_batch, const std::vector<int>& rank_of_row,
           const TrainPassOptions& options, const RankGroup& data);

  // Like TrainPass::RunUnit, but with several ranks exceptions are thrown after the last step.
  bool RunUnit();
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const {
    return pass_->failures();
  }
  void Commit() { pass_->Commit(); }

 private:
  // Returns steps for all ranks: of each kind as many as the rank with the most needs.
  std::vector<ModelStep> AgreeOnSteps(int64_t num_checkpointed) const;
  // Runs `body` unless an exception was caught before; stores an exception that it throws.
  template <typename Body>
  void Try(const Body& body);
  // Throws the exception of any rank on all ranks.
  void AgreeOnErrors() const;
  void ExchangeResults();

  const Model& model_;
  const RankGroup data_;
  const std::vector<RowRef> rows_;
  const std::vector<int> rank_of_row_;
  std::unique_ptr<TrainPass> pass_;
  // Used with several ranks only.
  std::vector<ModelStep> steps_;
  size_t next_step_ = 0;
  // An exception of this rank.
  struct Error {
    bool is_memory = false;
    std::string message;
  };
  std::optional<Error> error_;
};

}  // namespace lathe::worker
