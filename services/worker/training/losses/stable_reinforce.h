// Lathe's own stand-in for the hosted service's stable_reinforce, whose objective is not published.
#pragma once

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

// Over entries with mask 1 (sampled tokens), zero elsewhere:
//   loss = -sg(min(r, 4)) p A + kl_coeff/2 (p - q)^2, r = exp(p - q); sg stops the gradient.
// The cap keeps off-policy tokens from dominating, the second term pulls towards the sampler.
inline LossValue StableReinforce(const LossSpec& spec, const LossToken& token) {
  constexpr double kRatioCap = 4.0;
  if (token.mask == 0) return {};
  LossValue value;
  if (token.advantage != 0) {
    value.slope = -std::min(Ratio(token), kRatioCap) * token.advantage;
    value.loss = value.slope == 0 ? 0 : value.slope * token.p;
  }
  if (spec.kl_coeff > 0) {
    const double log_ratio = token.p - token.q;
    value.loss += 0.5 * spec.kl_coeff * log_ratio * log_ratio;
    value.slope += spec.kl_coeff * log_ratio;
  }
  return value;
}

inline constexpr LossOption kStableReinforceOptions[] = {{"kl_coeff", &LossSpec::kl_coeff}};

inline constexpr LossProgram kStableReinforce = {.name = "stable_reinforce",
                                                 .defaults = {.kind = LossKind::kStableReinforce},
                                                 .options = kStableReinforceOptions,
                                                 .mask = LossMask::kSampled,
                                                 .evaluate = StableReinforce};

}  // namespace lathe::worker
