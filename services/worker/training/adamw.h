// AdamW over one adapter's flat parameter buffer.
#pragma once

#include <vector>

#include "services/worker/lora/adapter.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// One step as PyTorch's AdamW with decoupled decay, after clipping the gradient to a global norm of
// `grad_clip_norm` (0: off) as torch.nn.utils.clip_grad_norm_ does. Clears the gradient and its
// window; the caller sets `applied_seq`.
//
// A gradient that is not finite skips the update: weights, moments and step count stay.
// Returns grad_norm (before clipping; left out when not finite), learning_rate, num_steps, and
// skipped_nonfinite_gradient (1 or 0).
std::vector<NamedMetric> ApplyAdamW(Adapter& adapter, const AdamParams& params);

}  // namespace lathe::worker
