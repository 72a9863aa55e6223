// Weighted cross-entropy.
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -w p. Soft targets are several entries of one position.
LossResult CrossEntropy(const at::Tensor& p, const LossInputs& in);

}  // namespace lathe::worker
