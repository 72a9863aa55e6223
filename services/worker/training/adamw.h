// AdamW over one adapter's flat parameter buffer.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/ops/training.h"

namespace lathe::worker {

// The ranks that take an optimizer step together. All of them call ApplyAdamW with the same
// settings, each for its part of the adapter.
struct StepRanks {
  RankGroups groups;
  std::string name = "adapter";  // model and step, for errors
};

// Takes one step like PyTorch's AdamW with decoupled decay, after clipping the gradient to the
// global norm `grad_clip_norm` (0: no clipping) like torch.nn.utils.clip_grad_norm_. Clears the
// gradient and its window; the caller sets `applied_seq`. On a CPU the bits of weights and metrics
// do not depend on the number of threads. The gradient is the sum of the ranks' shares. Norms and
// metrics cover the whole adapter, and all ranks make the same decisions. Throws RanksDisagree if
// the ranks' weights differ afterwards.
//
// `policy` applies if the gradient is not finite. kSkip leaves weights, moments and step count
// unchanged. kFail does the same and returns FailedPrecondition. kApply takes the step
// nevertheless. All three clear the gradient and its window.
//
// Returns grad_norm (before clipping), update_norm (norm of the weights' change), learning_rate,
// num_steps and nonfinite_gradients (1 or 0). The two norms are omitted if not finite.
absl::StatusOr<std::vector<NamedMetric>> ApplyAdamW(
    Adapter& adapter, const AdamParams& params,
    NonFiniteGradients policy = NonFiniteGradients::kSkip, const StepRanks& ranks = {});

}  // namespace lathe::worker
