// Adapters of a GPU decode pass: each row finds its adapter through a table at a fixed address.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/kernels/cuda/lora_rows.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// A table of pointers to the matrices of each slot's adapter; it copies no weights. Fill runs
// before each pass, so adapters may appear, disappear and move between passes. Only the executor
// thread uses it.
class LoraSlots {
 public:
  static constexpr int64_t kNumSlots = 64;
  static constexpr int64_t kMostRank = 128;

  // Serves passes of at most `most_rows` rows.
  LoraSlots(const DecoderSpec& model, int64_t most_rows, at::Device device);

  // Assigns adapters[i] to row i; null is the base model. Later rows get no adapter. Returns false
  // and changes nothing if there are more than kNumSlots different adapters or a rank exceeds
  // kMostRank. The adapters must live until the pass is over.
  bool Fill(std::span<const AdapterWeights* const> adapters);

  // AddLora for the rows set by Fill, with at most LoraRowsTask::kMostParts parts.
  void Add(const at::Tensor& x, const std::vector<LoraPart>& parts) const;

 private:
  int64_t num_linears_;   // rows of the LinearTable
  at::Tensor row_slots_;  // [most_rows] int32
  at::Tensor entries_;    // [kNumSlots, num_linears] of LoraSlotEntry, as bytes
};

}  // namespace lathe::worker
