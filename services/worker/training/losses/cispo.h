// Clipped importance-sampling policy optimisation (arXiv:2506.13585).
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -sg(clip(r, low, high)) p A with r = exp(p - q); sg stops the gradient.
LossResult Cispo(const at::Tensor& p, const LossInputs& in);

}  // namespace lathe::worker
