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

  // The compute copy of the weights as they are now; the same object until they change.
  std::shared_ptr<const AdapterWeights> Publish();
  void MarkChanged() { published_.reset(); }

  // Empties the accumulator and its window.
  void ClearGradient();

  // An all-zero buffer of the accumulator's shape, for the gradient of one pass.
  AdapterGradients MakeGradients() const;
  void AddGradients(const AdapterGradients& pass);

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
  std::shared_ptr<const AdapterWeights> published_;
};

}  // namespace lathe::worker
