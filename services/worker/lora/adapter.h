// One trainable LoRA adapter, or a tp rank's part of it: fp32 master weights, AdamW moments,
// gradient accumulator. A pool keeps all adapters of a worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "services/worker/lora/adapter_layout.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Fills `matrix` with U(-1/sqrt(in_features), 1/sqrt(in_features)): Kaiming-uniform with a = sqrt
// 5, like PEFT's A. `matrix` (fp32, contiguous, CPU) is the columns from `first_column` on of a
// whole matrix [rank, in_features]. Element i of the whole matrix is a function of (seed, name, i)
// only. So it does not depend on other matrices, adapters, threads or ranks.
void FillKaimingUniform(at::Tensor matrix, uint64_t seed, std::string_view name,
                        int64_t in_features, int64_t first_column);

// The AdapterPool owns adapters. Only the executor thread uses them.
class Adapter {
 public:
  // Initializes A as PEFT does (Kaiming-uniform, a = sqrt 5) and B with zero; moments and
  // accumulator are zero. The values depend only on lora.seed, the matrix's name and the element's
  // index in the whole matrix.
  Adapter(const ModelPart& model, const LoraSpec& lora, at::Device device);
  // Takes `flat` [num_parameters] fp32 as weights. It must be on the adapter's device.
  Adapter(const ModelPart& model, const LoraSpec& lora, const at::Tensor& flat);

  const ModelPart& model() const { return model_; }
  const LoraSpec& lora() const { return lora_; }
  const AdapterSizes& sizes() const { return sizes_; }
  int64_t num_parameters() const { return parameters().numel(); }
  double scaling() const { return lora_.alpha / static_cast<double>(lora_.rank); }

  // Returns the current weights without a copy. They do not change as long as the caller holds
  // them.
  std::shared_ptr<const AdapterWeights> Publish() const { return weights_; }

  // The weights: [num_parameters] fp32, in the order of AdapterLayout.
  const at::Tensor& parameters() const { return weights_->tensors.flat; }
  // Returns parameters() for writing. Replaces them by a copy if another owner holds them.
  at::Tensor MutableParameters();

  // Returns memory for the next weights. A step reads parameters(), writes all new weights to
  // `tensors.flat` of the result and passes it to Replace. The result is the current weights if no
  // other owner holds them. Otherwise it is an older version's memory that is free again, because
  // fresh pages cost as much as the step.
  std::shared_ptr<AdapterWeights> PrepareNext();
  void Replace(std::shared_ptr<AdapterWeights> next);

  // Zeroes the accumulator and clears its window.
  void ClearGradient();

  // Returns zeros in the accumulator's shape.
  AdapterGradients MakeGradients() const;
  // Views `flat` [num_parameters] fp32 in the accumulator's shape. A pass adds to a copy of the
  // accumulator and replaces the accumulator only if it succeeds.
  AdapterGradients GradientsOver(at::Tensor flat) const;
  void ReplaceGradient(const AdapterGradients& gradients) { gradient = gradients.tensors.flat; }

  at::Tensor exp_avg;     // first moment, shaped like parameters()
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
  std::shared_ptr<AdapterWeights> replaced_;  // weights replaced last, if others held them
};

// Only the executor thread uses it. Sorted by model id, so that reports have a stable order.
class AdapterPool {
 public:
  // Adds `adapter` or replaces the previous adapter of `model_id`.
  void Put(const std::string& model_id, std::shared_ptr<Adapter> adapter);
  void Drop(const std::string& model_id);
  // Returns nullptr if there is no such model. Shared, because a pass may outlive the model's
  // removal.
  std::shared_ptr<Adapter> Find(const std::string& model_id) const;
  const std::map<std::string, std::shared_ptr<Adapter>>& adapters() const { return adapters_; }

 private:
  std::map<std::string, std::shared_ptr<Adapter>> adapters_;
};

}  // namespace lathe::worker
