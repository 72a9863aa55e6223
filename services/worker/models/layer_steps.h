// The orders in which passes run a model's layers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "services/worker/models/model.h"

namespace lathe::worker {

// Embeds the rows and runs all layers. Returns [T, H], before the final norm.
at::Tensor RunLayers(const Model& model, const PackedRows& rows, AttentionContext& attention);

// Returns all steps of a training pass. The backward pass recomputes the first `num_checkpointed`
// layers.
std::vector<ModelStep> StepsOfTraining(int64_t num_layers, int64_t num_head_steps,
                                       bool wants_gradient, int64_t num_checkpointed);

// The layers of one training pass, a step at a time, and the activations that they keep.
class TrainingLayers {
 public:
  // `model` and `rows` must outlive this object.
  TrainingLayers(const Model& model, const PackedRows& rows, bool wants_gradient,
                 int64_t num_checkpointed);

  // Replaces `x` [T, H] by the next layer's output. Returns true if layers remain.
  bool Forward(at::Tensor& x);
  // Recomputes the next layer from the end, or replaces dL/d(its output) by dL/d(its input).
  // Returns true if steps remain. Call it after the last Forward.
  bool Backward(at::Tensor& dx, std::vector<AdapterGradients*>& gradients);

 private:
  const Model& model_;
  const PackedRows& rows_;
  const bool wants_gradient_;
  const int64_t num_checkpointed_;
  int64_t layer_ = 0;                               // next one; backward: one above the next
  std::vector<at::Tensor> checkpoints_;             // [T, H] each, by checkpointed layer
  std::vector<std::unique_ptr<LayerSaved>> saved_;  // by layer
};

}  // namespace lathe::worker
