// Cuts the datums of a batch into passes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/training/pass_memory.h"
#include "services/worker/training/train_job.h"

namespace lathe::worker {

// One datum of a job.
struct RowRef {
  TrainJob* job = nullptr;
  size_t datum = 0;
  int64_t num_tokens() const {
    return static_cast<int64_t>(job->request.data[datum].tokens.size());
  }
  int64_t num_entries() const {
    return static_cast<int64_t>(job->request.data[datum].targets.size());
  }
};

// The datums of one pass, in the order they are packed: neighbours share an adapter, and within it
// those without gradients come first. Of one adapter it has whole jobs, which the end of one that
// began in an earlier pass may precede; or a part of one job that goes on, and no other. So one
// gradient buffer per adapter serves the pass.
struct MicroBatch {
  std::vector<RowRef> rows;
};

// What the pass of `batch` is made of. A job that goes on has its gradients twice.
PassShape ShapeOf(const MicroBatch& batch);

// The pass of one datum that has no other beside it.
PassShape ShapeAlone(const TrainJob& job, size_t datum);

enum class Numerics {
  kFast,
  // Every adapter's gradient is a sum over its datums in the order (seq_id, datum), whatever else
  // runs and however passes are cut.
  kExact,
};

// fast or exact; InvalidArgument for another word.
absl::StatusOr<Numerics> ParseNumerics(const std::string& name);

struct PackingOptions {
  Numerics numerics = Numerics::kFast;
  int64_t num_ranks = 1;         // that share the rows of a micro-batch
  int64_t max_tokens = 0;        // of one micro-batch, on each of them
  int64_t max_bytes = 0;         // of its pass, on each of them
  int64_t num_checkpointed = 0;  // layers, as far as `max_bytes` goes
  // A job whose adapter's next rows come first, as far as one micro-batch goes; nullptr: none.
  const TrainJob* first = nullptr;
};

// Packs the datums that are not done first-fit into micro-batches; one that is larger than a
// micro-batch may be is alone. Small requests come before those of many passes. Depends on nothing
// but the arguments; takes about n log n steps.
std::deque<MicroBatch> PlanMicroBatches(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                        const PassMemory& memory, const PackingOptions& options);

// Takes out the datums of finished jobs, and micro-batches that become empty.
void DropFinishedJobs(std::deque<MicroBatch>& micro_batches);

}  // namespace lathe::worker
