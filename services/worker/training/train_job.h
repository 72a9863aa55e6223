// State of one TrainRequest across passes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/worker/lora/adapter.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// Owned by the Trainer. Its datums may be in several micro-batches. The adapter's accumulator does
// not change before the last of them is done.
struct TrainJob {
  TrainRequest request;
  std::shared_ptr<Adapter> adapter;
  std::shared_ptr<const AdapterWeights> weights;  // as of the start of the batch

  // Between two passes of a job: the accumulator plus the datums done so far. The next pass starts
  // from it, and the last pass's result becomes the accumulator.
  std::optional<AdapterGradients> gradients;

  std::vector<std::vector<float>> logprobs;  // per datum
  std::vector<double> losses;                // per datum
  std::vector<bool> is_done;                 // per datum
  int64_t num_pending_datums = 0;
  int64_t waits_since_pass = 0;  // number of passes at its start or after its last pass
  bool is_finished = false;      // its output or error was reported

  bool wants_gradient() const { return !request.forward_only; }
};

}  // namespace lathe::worker
