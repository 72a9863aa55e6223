// The importance ratio that the policy-gradient losses share.
#pragma once

#include <ATen/ATen.h>

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// p - q where the advantage is not zero, else 0: prompt positions carry q = 0 and advantage 0, and
// exp(p - 0) times 0 must not become NaN.
at::Tensor MaskedLogRatio(const at::Tensor& p, const LossInputs& in);

// loss = -min(r A, clip(r, low, high) A) for r [E] with dr/dp = r.
LossResult ClippedSurrogate(const at::Tensor& ratio, const LossInputs& in);

}  // namespace lathe::worker
