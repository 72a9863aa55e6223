// One trainable LoRA adapter, or what a rank of axis tp holds of it: fp32 master weights, AdamW
// moments, gradient accumulator.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "services/worker/lora/adapter_layout.h"
#include "services/worker/models/model_part.h"

namespace lathe::worker {

// Owned by the AdapterPool, used by the executor thread only.
class Adapter {
 public:
  // A Kaiming-uniform (a = sqrt 5) as PEFT, B zero; moments and accumulator zero. The values depend
  // on (lora.seed, matrix name, index of the element in the whole matrix) only.
  Adapter(const ModelPart& model, const LoraSpec& lora, at::Device device);
  // Its weights are `flat` [num_parameters] fp32, on the device where the adapter is to be.
  Adapter(const ModelPart& model, const LoraSpec& lora, const at::Tensor& flat);

  const ModelPart& model() const { return model_; }
  const LoraSpec& lora() const { return lora_; }
  const AdapterSizes& sizes() const { return sizes_; }
  int64_t num_parameters() const { return parameters().numel(); }
  double scaling() const { return lora_.alpha / static_cast<double>(lora_.rank); }

  // The weights as they are now, not copied; they stay as they are as long as the caller holds
  // them.
  std::shared_ptr<const AdapterWeights> Publish() const { return weights_; }

  // [num_parameters] fp32, laid out as AdapterLayout says.
  const at::Tensor& parameters() const { return weights_->tensors.flat; }
  // The same to be written; a copy takes their place if somebody else holds them.
  at::Tensor MutableParameters();

  // A step reads parameters(), writes all of its new weights to `tensors.flat` of what PrepareNext
  // returns and makes them the adapter's with Replace. They are the old ones themselves if nobody
  // else holds those, else memory of an older version that nobody holds any more: fresh pages cost
  // as much as the step.
  std::shared_ptr<AdapterWeights> PrepareNext();
  void Replace(std::shared_ptr<AdapterWeights> next);

  // For a save on another thread: weights and moments on the CPU, no accumulator.
  Adapter Snapshot() const;

  // Empties the accumulator and its window.
  void ClearGradient();

  // All zero, of the accumulator's shape.
  AdapterGradients MakeGradients() const;
  // The accumulator's shape over `flat` [num_parameters] fp32. A pass adds to a copy of the
  // accumulator and puts it in its place when all is well.
  AdapterGradients GradientsOver(at::Tensor flat) const;
  void ReplaceGradient(const AdapterGradients& gradients) { gradient = gradients.tensors.flat; }

  at::Tensor exp_avg;     // first moment, of the shape of parameters()
  at::Tensor exp_avg_sq;  // second moment
  at::Tensor gradient;    // this rank's share of the sum over the window
  int64_t num_steps = 0;  // AdamW's t
  int64_t applied_seq = 0;
  std::set<int64_t> window;  // seq_ids in the accumulator

 private:
  std::shared_ptr<AdapterWeights> MakeWeights(const at::Tensor& flat) const {
    return MakeAdapterWeights(flat, model_, lora_);
  }

  ModelPart model_;
  LoraSpec lora_;
  AdapterSizes sizes_;
  std::shared_ptr<AdapterWeights> weights_;
  std::shared_ptr<AdapterWeights> replaced_;  // the last that others held when they were replaced
};

}  // namespace lathe::worker
