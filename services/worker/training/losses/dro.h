// Direct reward optimisation (arXiv:2405.19107).
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -(p A - beta/2 (p - q)^2) where A is not zero.
LossResult Dro(const at::Tensor& p, const LossInputs& in, double beta);

}  // namespace lathe::worker
