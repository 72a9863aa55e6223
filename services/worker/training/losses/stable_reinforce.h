// Lathe's own stand-in for the hosted service's stable_reinforce, whose objective is not published.
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// Over entries with mask 1 (sampled tokens), zero elsewhere:
//   loss = -sg(min(r, 4)) p A + kl_coeff/2 (p - q)^2, r = exp(p - q); sg stops the gradient.
// The cap keeps off-policy tokens from dominating, the second term pulls towards the sampler.
LossResult StableReinforce(const at::Tensor& p, const LossInputs& in, double kl_coeff);

}  // namespace lathe::worker
