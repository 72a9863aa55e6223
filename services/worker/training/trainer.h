// Forward and backward of training requests, in small units that the executor drives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter_pool.h"
#include "services/worker/models/model.h"
#include "services/worker/ops.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/pass_memory.h"
#include "services/worker/training/rank_pass.h"
#include "services/worker/training/train_job.h"

namespace lathe::worker {

struct TrainerOptions {
  // Tokens of one micro-batch on each rank that shares its rows; a longer sequence is a
  // micro-batch of its own. More: fewer, larger matrix products, longer steps and more activation
  // memory.
  int64_t token_budget = 4096;
  // Elements of one chunk of logits (4 bytes each, two such buffers live at once).
  int64_t head_chunk_elements = int64_t{1} << 24;
  // Activations and gradients of one pass, on each rank. Less: smaller micro-batches, then layers
  // computed twice; a sequence that does not fit even so is refused.
  int64_t arena_bytes = int64_t{2} << 30;
  Numerics numerics = Numerics::kFast;
};

// Sums since the start, but for the arena.
struct TrainerCounters {
  int64_t passes = 0;  // micro-batches run to their end
  int64_t rows = 0;    // datums in them
  int64_t tokens = 0;
  int64_t out_of_memory_retries = 0;
  int64_t arena_used_bytes = 0;  // reserved by the pass that runs
  int64_t arena_peak_bytes = 0;  // the most that was reserved
};

struct FinishedRequest {
  std::string request_id;
  absl::StatusOr<TrainOutput> output;
};

// Requests of all models share passes, whatever their ranks and losses; those that come while a
// pass runs share the next one. Small requests come first; while they keep coming, every fourth
// pass begins with the request that has waited longest.
//
// A forward_backward adds to its adapter's accumulator and window when its last row is done, whole
// or not at all: a request with a non-finite loss or one whose pass threw changes nothing. A pass
// that runs out of memory is run again in halves, at most three times.
//
// Ranks of `data` share the rows of every pass. They make the same calls in the same order and run
// equally many steps; all finish the same requests with the same outputs. What a rank adds to its
// accumulators is its own rows' share: the gradient is the sum over `data`.
// Used by the executor thread only; `model` and `adapters` must outlive it.
class Trainer {
 public:
  Trainer(const Model& model, AdapterPool& adapters, const TrainerOptions& options,
          const RankGroup& data = {});
  ~Trainer();

  // Adds the batch to what is running. Requests are valid and not duplicates.
  void Begin(TrainBatch batch);

  bool HasWork() const;

  // Runs one step (a layer forward or backward, a head chunk). False: there was nothing to do.
  bool RunUnit();

  // Requests finished since the last call, in the order they finished.
  std::vector<FinishedRequest> TakeFinished();

  const TrainerCounters& counters() const { return counters_; }

 private:
  void Step();
  void StartNewRequests();
  void StartJob(TrainRequest request);
  absl::Status CheckFits(const TrainJob& job) const;
  const TrainJob* LongestWaiting();
  // What is not done, so that the next pass fits into every rank's memory.
  void Plan();
  bool NextPassFits() const;
  void PlanFullSize();
  void StartPass();
  void FinishPass();
  void EndPass();
  void RetryWithoutFailedRequests();
  bool RetryInHalves();
  void FailPass(absl::Status status);
  absl::Status OutOfMemory() const;
  void FailJob(TrainJob& job, absl::Status status);
  void CompleteJob(TrainJob& job);
  void CompleteFinishedJobs(const MicroBatch& batch);

  const Model& model_;
  AdapterPool& adapters_;
  const TrainerOptions options_;
  const RankGroup data_;
  const PassMemory memory_;
  std::deque<TrainBatch> queued_;
  std::vector<std::unique_ptr<TrainJob>> jobs_;  // started
  std::deque<MicroBatch> micro_batches_;         // of the jobs, the running one in front
  std::unique_ptr<RankPass> pass_;
  // What a micro-batch may hold: as the options say, or less after running out of memory.
  int64_t token_limit_;
  int64_t byte_limit_;
  int num_retries_ = 0;
  // The last pass that began with the job that had waited longest.
  std::optional<int64_t> aged_pass_;
  std::vector<FinishedRequest> finished_;
  TrainerCounters counters_;
};

}  // namespace lathe::worker
