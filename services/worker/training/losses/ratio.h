// The importance ratio that the policy-gradient losses share.
#pragma once

#include <ATen/ATen.h>

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// p - q where the advantage is not zero, else 0: prompt positions carry q = 0 and advantage 0, and
// exp(p - 0) times 0 must not become NaN.
inline at::Tensor MaskedLogRatio(const at::Tensor& p, const LossInputs& in) {
  return at::sub(p, in.logprobs).masked_fill_(in.advantages == 0, 0.0);
}

}  // namespace lathe::worker
