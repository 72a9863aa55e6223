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

// Steps: embedding, each layer forward, each head chunk, each layer backward. Writes nothing
// outside itself until Commit, so a pass can be dropped at any step. `model` and the jobs must
// outlive it.
class TrainPass {
 public:
  TrainPass(const Model& model, const MicroBatch& micro_batch, int64_t head_chunk_elements);

  // Runs one step; returns whether steps remain. None remain once failures() is not empty.
  bool RunUnit();

  // Jobs whose log-probabilities or losses are not finite, with the reason; known after the head.
  // The pass has then computed nothing usable: run it again without them.
  const std::vector<std::pair<TrainJob*, absl::Status>>& failures() const { return failures_; }

  // Hands logprobs and losses to the jobs and gradients to where they belong. Call once, after the
  // last step.
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
  PackedBatch batch_;
  LossHead head_;
  std::vector<AdapterGradients*> gradients_;  // into batch_.gradients
  Phase phase_ = Phase::kEmbed;
  int64_t layer_ = 0;
  at::Tensor x_;   // [T, H], then the final norm's input
  at::Tensor dx_;  // [T, H]
  std::vector<std::unique_ptr<LayerSaved>> saved_;
  std::vector<std::pair<TrainJob*, absl::Status>> failures_;
};

}  // namespace lathe::worker
