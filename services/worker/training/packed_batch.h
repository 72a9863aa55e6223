// The tensors of one pass, made from the datums of a micro-batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "services/worker/models/model.h"
#include "services/worker/training/losses/loss.h"
#include "services/worker/training/micro_batches.h"

namespace lathe::worker {

// Entries [entry_begin, entry_end) belong to one datum.
struct PackedDatum {
  RowRef row;
  int64_t entry_begin = 0;
  int64_t entry_end = 0;
};

// Neighbouring entries under one loss program.
struct LossRun {
  LossSpec loss;
  int64_t entry_begin = 0;
  int64_t entry_end = 0;
};

// Gradients of one pass, all zero at its start. Those of jobs that lie wholly in the pass go to
// their adapter together (`job` is null); a job that spans passes has its own.
struct PassGradients {
  std::shared_ptr<Adapter> adapter;
  TrainJob* job = nullptr;
  AdapterGradients gradients;
};

// Everything a pass computes on. An entry is a (position, target) pair: position t has entries
// [row_entries[t], row_entries[t + 1]), K of them.
struct PackedBatch {
  PackedRows rows;  // T rows
  std::vector<PackedDatum> datums;
  std::vector<LossRun> loss_runs;    // cover the entries in order
  std::vector<int64_t> row_entries;  // [T + 1]
  at::Tensor entry_rows;             // [E] int64
  at::Tensor entry_targets;          // [E] int64
  at::Tensor entry_wants_gradient;   // [E] fp32, 1 or 0 (forward_only)
  LossInputs loss_inputs;            // [E] each
  std::vector<PassGradients> gradients;

  int64_t num_tokens() const { return rows.tokens.size(0); }
  int64_t num_entries() const { return entry_rows.size(0); }
  bool wants_gradient() const { return !gradients.empty(); }
};

PackedBatch PackBatch(const MicroBatch& micro_batch, at::Device device);

}  // namespace lathe::worker
