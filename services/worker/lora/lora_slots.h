// Adapters of a decode pass on a GPU, found by each row through a table at a fixed address.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/kernels/cuda/lora_rows.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/models/model_spec.h"

namespace lathe::worker {

// The table says where the matrices of each slot's adapter lie; they are not copied. Filled before
// each pass, so adapters may come, go and move between passes. Executor thread only.
class LoraSlots {
 public:
  static constexpr int64_t kNumSlots = 64;
  static constexpr int64_t kMostRank = 128;

  // For passes of at most `most_rows` rows.
  LoraSlots(const ModelSpec& model, int64_t most_rows, at::Device device);

  // Row i uses adapters[i], null for the base model. False, and nothing changed, when there are
  // more than kNumSlots different ones or a rank is above kMostRank. Rows behind them have none.
  // The adapters must stay until the pass is over.
  bool Fill(std::span<const AdapterWeights* const> adapters);

  // AddLora for rows that Fill has named; part.y as there, at most LoraRowsTask::kMostParts parts.
  void Add(const at::Tensor& x, const std::vector<LoraPart>& parts) const;

 private:
  int64_t num_linears() const { return num_layers_ * kNumLoraTargets + 1; }

  int64_t num_layers_;
  at::Tensor row_slots_;  // [most_rows] int32
  at::Tensor entries_;    // [kNumSlots, linears] of LoraSlotEntry, as bytes
};

}  // namespace lathe::worker
