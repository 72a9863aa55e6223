#include "services/worker/models/layer_steps.h"

#include <utility>

#include "services/worker/models/packed_attention.h"

namespace lathe::worker {

at::Tensor RunLayers(const Model& model, const PackedRows& rows, AttentionContext& attention) {
  at::Tensor x = model.Embed(rows);
  for (int64_t layer = 0; layer < model.spec().num_layers(); ++layer) {
    x = model.LayerForward(layer, x, rows, attention);
  }
  return x;
}

std::vector<ModelStep> StepsOfTraining(int64_t num_layers, int64_t num_head_steps,
                                       bool wants_gradient, int64_t num_checkpointed) {
  std::vector<ModelStep> steps = {{.kind = ModelStep::Kind::kEmbed}};
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    steps.push_back({.kind = ModelStep::Kind::kForward, .layer = layer});
  }
  steps.insert(steps.end(), num_head_steps, {.kind = ModelStep::Kind::kHead});
  if (!wants_gradient) return steps;
  for (int64_t layer = num_layers - 1; layer >= 0; --layer) {
    if (layer < num_checkpointed) {
      steps.push_back({.kind = ModelStep::Kind::kRecompute, .layer = layer});
    }
    steps.push_back({.kind = ModelStep::Kind::kBackward, .layer = layer});
  }
  return steps;
}

TrainingLayers::TrainingLayers(const Model& model, const PackedRows& rows, bool wants_gradient,
                               int64_t num_checkpointed)
    : model_(model),
      rows_(rows),
      wants_gradient_(wants_gradient),
      num_checkpointed_(num_checkpointed),
      checkpoints_(model.spec().num_layers()),
      saved_(model.spec().num_layers()) {}

bool TrainingLayers::Forward(at::Tensor& x) {
  if (wants_gradient_ && layer_ >= num_checkpointed_) {
    x = model_.LayerForwardSaving(layer_, x, rows_, &saved_[layer_]);
  } else {
    if (wants_gradient_) checkpoints_[layer_] = x;
    PackedAttention attention(rows_, model_.attention_arithmetic());
    x = model_.LayerForward(layer_, x, rows_, attention);
  }
  return ++layer_ < model_.spec().num_layers();
}

bool TrainingLayers::Backward(at::Tensor& dx, std::vector<AdapterGradients*>& gradients) {
  const int64_t layer = layer_ - 1;
  if (checkpoints_[layer].defined()) {
    // Recomputing is a separate step, because it takes as long as a forward step.
    saved_[layer] = model_.LayerRecompute(layer, checkpoints_[layer], rows_);
    checkpoints_[layer].reset();
    return true;
  }
  dx = model_.LayerBackward(layer, dx, rows_, std::move(saved_[layer]), gradients);
  layer_ = layer;
  return layer_ > 0;
}

}  // namespace lathe::worker
