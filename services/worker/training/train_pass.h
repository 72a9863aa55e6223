// Forward and, if any row has gradients, backward pass of a micro-batch's rows, as a list of steps.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "services/worker/models/layer_steps.h"
#include "services/worker/models/model.h"
#include "services/worker/training/loss_head.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/packed_batch.h"

namespace lathe::worker {

// Results of one datum.
struct DatumResult {
  RowRef row;
  std::vector<float> logprobs;
  std::vector<float> losses;
};

struct TrainPassOptions {
  int64_t head_chunk_elements = 0;
  // The first `num_checkpointed` layers keep only their input; the backward pass recomputes them.
  int64_t num_checkpointed = 0;
};

// Steps: embedding, each layer forward, each half of a head chunk, each layer backward (a
// checkpointed layer is recomputed first). Changes nothing outside itself until Commit, so a pass
// can be dropped at any step. `model` and the jobs must outlive it.
class TrainPass {
 public:
  enum class Phase { kEmbed, kForward, kHead, kBackward, kDone };

  // Runs the rows with `is_own` set, by index in the micro-batch. There may be none.
  TrainPass(const Model& model, const MicroBatch& micro_batch, const std::vector<bool>& is_own,
            const TrainPassOptions& options);

  // Number of head steps; 0 without rows.
  int64_t num_head_steps() const { return head_.num_half_chunks(); }
  bool wants_gradient() const { return batch_.wants_gradient(); }

  // Phase of the next step.
  Phase phase() const { return phase_; }
  // Runs one step. Returns true if steps remain; none remain once failures() is not empty.
  bool RunUnit();

  // Results of this pass's rows, in their order; valid after the head.
  const std::vector<DatumResult>& results() const { return results_; }
  // Sets the results of all rows of the micro-batch. Replaces results() and failures().
  void SetResults(std::vector<DatumResult> results);

  // Jobs with log-probabilities or losses that are not finite, and the reason; valid after the
  // head. If there are any, the pass has no usable results: run it again without them.
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const { return failures_; }

  // Passes log-probabilities and losses to the jobs. Passes gradients to the job if it continues in
  // another pass, otherwise to the adapter. Call it once, after the last step, with the results of
  // all rows.
  void Commit();

 private:
  void ForwardLayer();
  void RunHeadChunk();
  void BackwardLayer();
  void TakeHeadsResults();

  const Model& model_;
  PackedBatch batch_;
  LossHead head_;
  TrainingLayers layers_;
  std::vector<AdapterGradients*> gradients_;  // into batch_.gradients
  Phase phase_ = Phase::kEmbed;
  at::Tensor x_;   // [T, H], finally the final norm's input
  at::Tensor dx_;  // [T, H]
  std::vector<DatumResult> results_;
  std::vector<std::pair<TrainJob*, absl::Status>> failures_;
};

}  // namespace lathe::worker
