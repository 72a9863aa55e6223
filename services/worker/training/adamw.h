// AdamW over one adapter's flat parameter buffer.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/lora/adapter.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// With whom a step is done: all of them call ApplyAdamW with the same settings, each for its part.
struct StepRanks {
  RankGroups groups;
  std::string name = "adapter";  // of model and step, in errors
};

// One step as PyTorch's AdamW with decoupled decay, after clipping the gradient to a global norm of
// `grad_clip_norm` (0: off) as torch.nn.utils.clip_grad_norm_ does. Clears the gradient and its
// window; the caller sets `applied_seq`. On a CPU the bits of weights and metrics depend on the
// adapter alone, not on the number of threads. The gradient is the sum of the ranks' shares, norms
// and metrics are of the whole adapter; all ranks decide alike. RanksDisagree is thrown when their
// weights differ afterwards.
//
// A gradient that is not finite is dealt with as `policy` says: kSkip leaves weights, moments and
// step count as they are, kFail too but returns FailedPrecondition, kApply steps all the same; the
// gradient and its window are cleared in each case.
//
// Returns grad_norm (before clipping) and update_norm (of the change of the weights), both left out
// when not finite, learning_rate, num_steps, and nonfinite_gradients (1 or 0).
absl::StatusOr<std::vector<NamedMetric>> ApplyAdamW(
    Adapter& adapter, const AdamParams& params,
    NonFiniteGradients policy = NonFiniteGradients::kSkip, const StepRanks& ranks = {});

}  // namespace lathe::worker
