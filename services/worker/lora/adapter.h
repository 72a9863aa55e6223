// One trainable LoRA adapter: fp32 master weights, AdamW moments, gradient accumulator.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "services/worker/lora/adapter_weights.h"
#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// Owned by the AdapterPool, used by the executor thread only.
// Whoever writes `parameters` calls MarkChanged(), else Publish() returns the old weights.
class Adapter {
 public:
  // A Kaiming-uniform (a = sqrt 5) as PEFT, B zero; moments and accumulator zero. The values depend
  // on (lora.seed, matrix name, element index) only.
  Adapter(const ModelSpec& model, const LoraSpec& lora, at::Device device);

  const LoraSpec& lora() const { return lora_; }
  int64_t num_parameters() const { return parameters.numel(); }
  double scaling() const { return lora_.alpha / static_cast<double>(lora_.rank); }

  // The compute copy of the weights as they are now; the same object until they change. Memory of
  // an outdated one is used again if nobody else holds it: fresh pages cost more than the copy.
  std::shared_ptr<const AdapterWeights> Publish();
  void MarkChanged() { is_outdated_ = true; }

  // Empties the accumulator and its window.
  void ClearGradient();

  // All zero, of the accumulator's shape.
  AdapterGradients MakeGradients() const;
  // The accumulator's shape over `flat` [num_parameters] fp32. A pass adds to a copy of the
  // accumulator and puts it in its place when all is well.
  AdapterGradients GradientsOver(at::Tensor flat) const;
  void ReplaceGradient(const AdapterGradients& gradients) { gradient = gradients.tensors.flat; }

  at::Tensor parameters;  // [num_parameters] fp32, laid out as AdapterLayout says
  at::Tensor exp_avg;     // first moment, same shape
  at::Tensor exp_avg_sq;  // second moment
  at::Tensor gradient;    // sum over the window
  int64_t num_steps = 0;  // AdamW's t
  int64_t applied_seq = 0;
  std::set<int64_t> window;  // seq_ids in the accumulator

 private:
  ModelSpec model_;
  LoraSpec lora_;
  std::shared_ptr<AdapterWeights> published_;
  bool is_outdated_ = true;  // published_ does not hold `parameters`
};

}  // namespace lathe::worker
