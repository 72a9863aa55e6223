// Rows of one micro-batch forward and, if any row wants gradients, backward: a list of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "services/worker/models/model.h"
#include "services/worker/training/loss_head.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/packed_batch.h"

namespace lathe::worker {

// What a datum gets.
struct DatumResult {
  RowRef row;
  std::vector<float> logprobs;
  std::vector<float> losses;
};

struct TrainPassOptions {
  int64_t head_chunk_elements = 0;
  // The first so many layers keep only their input and are computed again in the backward pass.
  int64_t num_checkpointed = 0;
};

// Steps: embedding, each layer forward, each half of a head chunk, each layer backward (a
// checkpointed one is first computed again). Writes nothing outside itself until Commit, so a pass
// can be dropped at any step. `model` and the jobs must outlive it.
class TrainPass {
 public:
  enum class Phase { kEmbed, kForward, kHead, kBackward, kDone };

  // Of the rows that `is_own` says, by place in the micro-batch; there may be none.
  TrainPass(const Model& model, const MicroBatch& micro_batch, const std::vector<bool>& is_own,
            const TrainPassOptions& options);

  // How many steps the head has; 0 without rows.
  int64_t num_head_steps() const { return head_.num_half_chunks(); }
  bool wants_gradient() const { return batch_.wants_gradient(); }

  // Of the next step.
  Phase phase() const { return phase_; }
  // Runs one step; returns whether steps remain. None remain once failures() is not empty.
  bool RunUnit();

  // Of its rows, in their order; known after the head.
  const std::vector<DatumResult>& results() const { return results_; }
  // Of all rows of the micro-batch: takes the place of results() and of failures().
  void SetResults(std::vector<DatumResult> results);

  // Jobs whose log-probabilities or losses are not finite, with the reason; known after the head.
  // The pass has then computed nothing usable: run it again without them.
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const { return failures_; }

  // Hands logprobs and losses to the jobs, and gradients to the job that goes on in another pass or
  // else to the adapter. Call once, after the last step, with the results of all rows.
  void Commit();

 private:
  void ForwardLayer();
  void RunHeadChunk();
  void BackwardLayer();
  void TakeHeadsResults();

  const Model& model_;
  const int64_t num_checkpointed_;
  PackedBatch batch_;
  LossHead head_;
  std::vector<AdapterGradients*> gradients_;  // into batch_.gradients
  Phase phase_ = Phase::kEmbed;
  int64_t layer_ = 0;                    // next one forward; backward: the one after the next
  at::Tensor x_;                         // [T, H], then the final norm's input
  at::Tensor dx_;                        // [T, H]
  std::vector<at::Tensor> checkpoints_;  // [T, H] each, by checkpointed layer
  std::vector<std::unique_ptr<LayerSaved>> saved_;  // by layer
  std::vector<DatumResult> results_;
  std::vector<std::pair<TrainJob*, absl::Status>> failures_;
};

}  // namespace lathe::worker
