// One TrainRequest on its way through passes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/worker/lora/adapter.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// Owned by the Trainer. Its datums may lie in several micro-batches; nothing reaches the adapter's
// accumulator before the last of them is done.
struct TrainJob {
  TrainRequest request;
  std::shared_ptr<Adapter> adapter;
  std::shared_ptr<const AdapterWeights> weights;  // as they were when the batch began

  // Between two passes of a job: the accumulator with the datums so far added. The next pass goes
  // on from it, and the last one's result becomes the accumulator.
  std::optional<AdapterGradients> gradients;

  std::vector<std::vector<float>> logprobs;  // per datum
  std::vector<double> losses;                // per datum
  std::vector<bool> is_done;                 // per datum
  int64_t num_pending_datums = 0;
  int64_t waits_since_pass = 0;  // passes there had been when it came, or last had a row in one
  bool is_finished = false;      // an output or an error was reported

  bool wants_gradient() const { return !request.forward_only; }
};

}  // namespace lathe::worker
