// The tensors of one pass, made from the datums of a micro-batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/worker/models/model.h"
#include "services/worker/training/micro_batches.h"

namespace lathe::worker {

// Entries [entry_begin, entry_end) belong to one datum.
struct PackedDatum {
  RowRef row;
  int64_t entry_begin = 0;
  int64_t entry_end = 0;
};

// Gradients of one adapter in one pass: they start as what was summed before, so that cutting rows
// into passes elsewhere changes no bit. `job` is the last one with rows here; if it goes on in
// another pass they are its own, else they become the accumulator.
struct PassGradients {
  TrainJob* job = nullptr;
  AdapterGradients gradients;
};

// Everything a pass computes on. An entry is a (position, target) pair: position t has entries
// [row_entries[t], row_entries[t + 1]), K of them.
struct PackedBatch {
  PackedRows rows;                     // T rows
  std::vector<PackedDatum> datums;     // cover the entries in order
  std::vector<int64_t> row_entries;    // [T + 1]
  std::vector<int64_t> entry_targets;  // [E]
  // Of all adapters of the pass, those without a row here too.
  std::vector<PassGradients> gradients;

  int64_t num_tokens() const { return rows.tokens.size(0); }
  int64_t num_entries() const { return static_cast<int64_t>(entry_targets.size()); }
  // Of its rows.
  bool wants_gradient() const;
};

// The datum's part of `values` [E] on the host.
std::span<const float> EntriesOf(const at::Tensor& values, const PackedDatum& datum);

// Of the rows that `is_own` says, by place in the micro-batch; other ranks have the others.
PackedBatch PackBatch(const MicroBatch& micro_batch, const std::vector<bool>& is_own,
                      at::Device device);

}  // namespace lathe::worker
