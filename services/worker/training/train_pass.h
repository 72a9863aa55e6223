// One micro-batch forward and, if any row wants gradients, backward: a list of steps.
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
  TrainPass(const Model& model, const MicroBatch& micro_batch, const TrainPassOptions& options);

  // Runs one step; returns whether steps remain. None remain once failures() is not empty.
  bool RunUnit();

  // Jobs whose log-probabilities or losses are not finite, with the reason; known after the head.
  // The pass has then computed nothing usable: run it again without them.
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const { return failures_; }

  // Hands logprobs and losses to the jobs, and gradients to the job that goes on in another pass or
  // else to the adapter. Call once, after the last step.
  void Commit();

  int64_t num_datums() const { return static_cast<int64_t>(batch_.datums.size()); }
  int64_t num_tokens() const { return batch_.num_tokens(); }

 private:
  enum class Phase { kEmbed, kForward, kHead, kBackward, kDone };

  void ForwardLayer();
  void RunHeadChunk();
  void BackwardLayer();
  void CheckResults();

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
  std::vector<std::pair<TrainJob*, absl::Status>> failures_;
};

}  // namespace lathe::worker
