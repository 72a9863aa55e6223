// Forward and backward passes of training requests, in small units that the executor runs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/models/model.h"
#include "services/worker/ops/commands.h"
#include "services/worker/ops/counters.h"
#include "services/worker/ops/training.h"
#include "services/worker/training/micro_batches.h"
#include "services/worker/training/pass_memory.h"
#include "services/worker/training/rank_pass.h"
#include "services/worker/training/train_job.h"

namespace lathe::worker {

struct TrainerOptions {
  // Tokens of one micro-batch per rank that shares its rows; a longer sequence has a micro-batch
  // alone. A larger value means fewer, larger matrix products, longer steps and more activation
  // memory.
  int64_t token_budget = 4096;
  // Logits per chunk (4 bytes each; two such buffers exist at once).
  int64_t head_chunk_elements = int64_t{1} << 24;
  // Bytes of activations and gradients of one pass, per rank. A smaller value means smaller
  // micro-batches, then recomputed layers. A sequence that never fits is rejected.
  int64_t arena_bytes = int64_t{2} << 30;
  Numerics numerics = Numerics::kFast;
};

struct FinishedRequest {
  std::string request_id;
  absl::StatusOr<TrainOutput> output;
};

// Returns how training passes of `model` compute.
PassCompute PassComputeOf(const Model& model);

// Runs training requests. Requests of all models share passes, whatever their ranks and losses.
// Requests that arrive during a pass share the next one. Small requests come first; while they keep
// arriving, every fourth pass begins with the longest-waiting request.
//
// A forward_backward adds to its adapter's accumulator and window when its last row is done. It
// adds everything or nothing: a non-finite loss or an exception in its pass changes nothing. A pass
// that runs out of memory is repeated in halves, at most three times.
//
// Ranks of `data` share the rows of every pass. They make the same calls in the same order and run
// equally many steps. All finish the same requests with the same outputs. A rank's accumulators
// have its own rows' share: the gradient is the sum over `data`. Only the executor thread uses it;
// `model` and `adapters` must outlive it.
class Trainer {
 public:
  Trainer(const Model& model, AdapterPool& adapters, const TrainerOptions& options,
          const RankGroup& data = {});
  ~Trainer();

  // Queues the batch. Its requests must be valid and not duplicates.
  void Begin(TrainBatch batch);

  bool HasWork() const;

  // Runs one step (a layer forward or backward, a head chunk). Returns false if there is no work.
  bool RunUnit();

  // Returns the requests finished since the last call, in order.
  std::vector<FinishedRequest> TakeFinished();

  const TrainCounters& counters() const { return counters_; }
  // Bytes that the current pass has reserved; 0: no pass.
  int64_t pass_bytes() const { return pass_bytes_; }

 private:
  void Step();
  void StartNewRequests();
  void StartJob(TrainRequest request);
  absl::Status CheckFits(const TrainJob& job) const;
  const TrainJob* LongestWaiting();
  // Plans the unfinished datums such that the next pass fits into every rank's memory.
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
  std::deque<MicroBatch> micro_batches_;         // of the jobs; the running one is first
  std::unique_ptr<RankPass> pass_;
  // Limits of a micro-batch: those of the options, or less after running out of memory.
  int64_t token_limit_;
  int64_t byte_limit_;
  int num_retries_ = 0;
  // Index of the last pass that began with the longest-waiting job.
  std::optional<int64_t> aged_pass_;
  std::vector<FinishedRequest> finished_;
  int64_t pass_bytes_ = 0;
  TrainCounters counters_;
};

}  // namespace lathe::worker
