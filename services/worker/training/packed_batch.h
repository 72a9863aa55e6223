// The tensors of one pass, built from the datums of a micro-batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/worker/spec/packed_rows.h"
#include "services/worker/training/micro_batches.h"

namespace lathe::worker {

// One datum's entries [entry_begin, entry_end).
struct PackedDatum {
  RowRef row;
  int64_t entry_begin = 0;
  int64_t entry_end = 0;
};

// Gradients of one adapter in one pass. They start with the sum so far, so that the division into
// passes changes no bit. `job` is the last job with rows here. If it continues in another pass, the
// gradients become the job's, otherwise the adapter's accumulator.
struct PassGradients {
  TrainJob* job = nullptr;
  AdapterGradients gradients;
};

// The input of a pass. An entry is a (position, target) pair. Position t has the K entries
// [row_entries[t], row_entries[t + 1]).
struct PackedBatch {
  PackedRows rows;                     // T rows
  std::vector<PackedDatum> datums;     // cover the entries in order
  std::vector<int64_t> row_entries;    // [T + 1]
  std::vector<int64_t> entry_targets;  // [E]
  // One per adapter of the pass, also for adapters without a row on this rank.
  std::vector<PassGradients> gradients;

  int64_t num_tokens() const { return rows.tokens.size(0); }
  int64_t num_entries() const { return static_cast<int64_t>(entry_targets.size()); }
  // Returns true if any of this rank's rows has a gradient.
  bool wants_gradient() const;
};

// Returns the datum's part of `values` [E], which is on the host.
std::span<const float> EntriesOf(const at::Tensor& values, const PackedDatum& datum);

// Packs the rows with `is_own` set, by index in the micro-batch; other ranks pack the others.
PackedBatch PackBatch(const MicroBatch& micro_batch, const std::vector<bool>& is_own,
                      at::Device device);

}  // namespace lathe::worker
