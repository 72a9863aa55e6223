// Cuts the datums of a batch into passes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "services/worker/training/train_job.h"

namespace lathe::worker {

// One datum of a job.
struct RowRef {
  TrainJob* job = nullptr;
  size_t datum = 0;
  int64_t num_tokens() const {
    return static_cast<int64_t>(job->request.data[datum].tokens.size());
  }
};

// The datums of one pass, in the order they are packed: neighbours share an adapter, and within it
// a destination for gradients, and within that lengths ascend (attention batches equal lengths).
struct MicroBatch {
  std::vector<RowRef> rows;
};

// Fills micro-batches up to `token_budget` tokens, adapter by adapter; a longer datum is alone.
// Sets spans_micro_batches of each job. Depends on nothing but the arguments.
std::deque<MicroBatch> PlanMicroBatches(const std::vector<std::unique_ptr<TrainJob>>& jobs,
                                        int64_t token_budget);

// Takes out the datums of finished jobs, and micro-batches that become empty.
void DropFinishedJobs(std::deque<MicroBatch>& micro_batches);

}  // namespace lathe::worker
