// Adapters of a GPU decode pass: each row finds its adapter through a table at a fixed address.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/kernels/cuda/lora_rows.h"
#include "services/worker/lora/lora_linear.h"
#include "services/worker/spec/activation.h"
#include "services/worker/spec/model_part.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Rows that are added to the outputs of parts before their low-rank updates. N is the width of all
// parts side by side. Either may be undefined.
struct LoraAddends {
  at::Tensor residual;  // [T, N] fp32
  at::Tensor bias;      // [N] fp32
};

// A table of pointers to the matrices of each slot's adapter; it copies no weights. Fill runs
// before each pass, so adapters may appear, disappear and move between passes. Only the executor
// thread uses it.
class LoraSlots {
 public:
  // Most ranks that a pass can be made for. The last one is the API's bound. Blocks of the kernels
  // run idle for ranks that no adapter has, so passes of small adapters are made for fewer.
  static constexpr std::array<int64_t, 2> kMostRanks = {128, 512};

  // Serves passes of at most `most_rows` rows, each with any adapter.
  LoraSlots(const DecoderSpec& model, int64_t most_rows, at::Device device);

  // Assigns adapters[i] to row i; null is the base model. Later rows get no adapter. Returns which
  // of kMostRanks the pass is made for, or 0 if no row has an adapter. The adapters must live until
  // the pass is over.
  int64_t Fill(std::span<const AdapterWeights* const> adapters);

  // AddLora for the rows set by Fill, with at most LoraRowsTask::kMostParts parts. Adds `addends`
  // first, in the same launch, to the rows without an adapter too. A recording of it serves all
  // passes for which Fill returns the same.
  void Add(const at::Tensor& x, const std::vector<LoraPart>& parts,
           const LoraAddends& addends = {}) const;

  // Add, and GatedActivation of its two parts in the same launch. Returns [T, I] in the parts'
  // dtype. Does not change the parts.
  at::Tensor AddGated(Activation activation, const at::Tensor& x,
                      const std::vector<LoraPart>& parts, const LoraAddends& addends) const;

 private:
  // Describes Add. The task's pointers are valid while the arguments and `products` live.
  LoraRowsTask TaskOf(const at::Tensor& x, const std::vector<LoraPart>& parts,
                      const LoraAddends& addends, const at::Tensor& products) const;
  // Returns the task's scratch memory.
  at::Tensor ProductsOf(const at::Tensor& x, const std::vector<LoraPart>& parts) const;

  const int64_t num_linears_;  // rows of the LinearTable
  int64_t most_rank_ = 0;      // what Fill returned
  at::Tensor row_slots_;       // [most_rows] int32
  at::Tensor entries_;         // [most_rows, num_linears] of LoraSlotEntry, as bytes
  // Contents of the tensors. Most decode passes have the adapters of the one before.
  std::vector<int32_t> copied_row_slots_;
  std::vector<LoraSlotEntry> copied_entries_;
};

// Returns the table of a decode pass, or null if the segments name their adapters.
const LoraSlots* SlotsOf(const std::vector<Segment>& segments);

}  // namespace lathe::worker
