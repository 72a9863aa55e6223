// Policy gradient with an importance ratio.
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -r A with r = exp(p - q).
LossResult ImportanceSampling(const at::Tensor& p, const LossInputs& in);

}  // namespace lathe::worker
