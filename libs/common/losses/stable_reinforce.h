// Lathe's substitute for the hosted service's stable_reinforce, whose objective is not published.
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

inline constexpr LossOption kStableReinforceOptions[] = {{.key = "kl_coeff"}};

// For entries with mask 1 (sampled tokens); zero for others:
//   loss = -sg(min(r, 4)) p A + kl_coeff/2 (p - q)^2, r = exp(p - q); sg stops the gradient.
// The cap keeps off-policy tokens from dominating. The second term pulls the policy towards the
// sampler.
inline LossValue StableReinforce(const LossSpec& spec, const LossToken& token) {
  constexpr double kRatioCap = 4.0;
  if (token.mask == 0) return {};
  LossValue value;
  if (token.advantage != 0) {
    value.slope = -std::min(Ratio(token), kRatioCap) * token.advantage;
    value.loss = value.slope == 0 ? 0 : value.slope * token.p;
  }
  const double kl_coeff = spec.numbers[0];
  if (kl_coeff > 0) {
    const double log_ratio = token.p - token.q;
    value.loss += 0.5 * kl_coeff * log_ratio * log_ratio;
    value.slope += kl_coeff * log_ratio;
  }
  return value;
}

// The second term also includes sampled tokens without an advantage.
inline bool StableReinforceCountsMask(const LossSpec& spec) { return spec.numbers[0] > 0; }

inline constexpr LossProgram kStableReinforce = {.name = "stable_reinforce",
                                                 .options = kStableReinforceOptions,
                                                 .mask = LossMask::kSampled,
                                                 .evaluate = StableReinforce,
                                                 .counts_mask = StableReinforceCountsMask};

}  // namespace lathe
