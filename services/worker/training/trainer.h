// Forward and backward of training requests, in small units that the executor drives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/lora/adapter_pool.h"
#include "services/worker/models/model.h"
#include "services/worker/ops.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/train_job.h"
#include "services/worker/training/train_pass.h"

namespace lathe::worker {

struct TrainerOptions {
  // Tokens of one micro-batch; a longer sequence is a micro-batch of its own. More: fewer, larger
  // matrix products and more activation memory.
  int64_t token_budget = 4096;
  // Elements of one chunk of logits (4 bytes each, two such buffers live at once).
  int64_t head_chunk_elements = int64_t{1} << 24;
};

// Sums since the start.
struct TrainerCounters {
  int64_t passes = 0;  // micro-batches run to their end
  int64_t rows = 0;    // datums in them
  int64_t tokens = 0;
};

struct FinishedRequest {
  std::string request_id;
  absl::StatusOr<TrainOutput> output;
};

// Requests of all models in a TrainBatch share passes, whatever their ranks and losses.
//
// A forward_backward adds to its adapter's accumulator and window when its last row is done, whole
// or not at all: a request with a non-finite loss or one whose pass threw changes nothing.
// Used by the executor thread only; `model` and `adapters` must outlive it.
class Trainer {
 public:
  Trainer(const Model& model, AdapterPool& adapters, const TrainerOptions& options);
  ~Trainer();

  // Queues the batch behind what is running. Requests are valid and not duplicates.
  void Begin(TrainBatch batch);

  bool HasWork() const;

  // Runs one step (a layer forward or backward, a head chunk). False: there was nothing to do.
  bool RunUnit();

  // Requests finished since the last call, in the order they finished.
  std::vector<FinishedRequest> TakeFinished();

  const TrainerCounters& counters() const { return counters_; }

 private:
  void Step();
  void StartNextBatch();
  void FinishPass();
  void RetryWithoutFailedRequests();
  void FailPass(const absl::Status& status);
  void FailJob(TrainJob& job, absl::Status status);
  void CompleteJob(TrainJob& job);
  void CompleteFinishedJobs(const MicroBatch& batch);

  const Model& model_;
  AdapterPool& adapters_;
  const TrainerOptions options_;
  std::deque<TrainBatch> queued_;
  std::vector<std::unique_ptr<TrainJob>> jobs_;  // of the running batch
  std::deque<MicroBatch> micro_batches_;         // of the running batch, the running one in front
  std::unique_ptr<TrainPass> pass_;
  std::vector<FinishedRequest> finished_;
  TrainerCounters counters_;
};

}  // namespace lathe::worker
