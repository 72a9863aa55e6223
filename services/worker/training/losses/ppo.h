// Proximal policy optimisation's clipped objective (arXiv:1707.06347).
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -min(r A, clip(r, low, high) A) with r = exp(p - q).
LossResult Ppo(const at::Tensor& p, const LossInputs& in);

}  // namespace lathe::worker
