// Divides the datums of a batch into passes.
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

// The datums of one pass, in packing order: sorted by adapter, and within an adapter those without
// gradients first. For each adapter it has either whole jobs, possibly after the end of a job from
// an earlier pass, or a part of one unfinished job and no other. So one gradient buffer per adapter
// suffices.
struct MicroBatch {
  std::vector<RowRef> rows;
};

// Returns the shape of the pass of `batch`. A job that continues in a later pass counts its
// gradients twice.
PassShape ShapeOf(const MicroBatch& batch);

// Returns the shape of a pass with this datum only.
PassShape ShapeAlone(const TrainJob& job, size_t datum);

enum class Numerics {
  kFast,
  // Every adapter's gradient is a sum over its datums in the order (seq_id, datum). It does not
  // depend on other requests or on the division into passes.
  kExact,
};

// Parses "fast" or "exact"; InvalidArgument for any other name.
absl::StatusOr<Numerics> ParseNumerics(const std::string& name);

struct PackingOptions {
  Numerics numerics = Numerics::kFast;
  int64_t num_ranks = 1;         // ranks that share the rows of a micro-batch
  int64_t max_tokens = 0;        // per micro-batch and rank
  int64_t max_bytes = 0;         // per pass and rank
  int64_t num_checkpointed = 0;  // number of layers that `max_bytes` assumes checkpointed
  // Job whose adapter's next rows go first, as many as one micro-batch holds; nullptr if none.
  const TrainJob* first = nullptr;
};

// Packs the unfinished datums first-fit into micro-batches. A datum that exceeds the limits has a
// micro-batch alone. Small requests come before those of many passes. The result depends only on
// the arguments; the cost is about n log n.
std::deque<MicroBatch> PlanMicroBatches(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                        const PassMemory& memory, const PackingOptions& options);

// Removes the datums of finished jobs, and then empty micro-batches.
void DropFinishedJobs(std::deque<MicroBatch>& micro_batches);

}  // namespace lathe::worker
