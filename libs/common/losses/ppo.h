// The clipped objective of proximal policy optimization (arXiv:1707.06347), optionally with the
// lower bound of arXiv:1912.09729, section 5.
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

inline constexpr LossOption kPpoOptions[] = {
    // A value of 0 turns the bound off.
    {.key = "dual_clip_threshold", .default_value = 0, .minimum = 1, .excludes_minimum = true}};

// loss = -min(r A, clip(r, low, high) A) with r = exp(p - q). With a dual clip threshold c, the
// loss for A < 0 is at most -c A, so that a very large ratio does not dominate the step.
inline LossValue Ppo(const LossSpec& spec, const LossToken& token) {
  const LossValue value = ClippedSurrogate(Ratio(token), token);
  const double threshold = spec.numbers[0];
  if (threshold == 0 || token.advantage >= 0) return value;
  const double limit = -threshold * token.advantage;
  return value.loss > limit ? LossValue{.loss = limit, .slope = 0} : value;
}

inline constexpr LossProgram kPpo = {.name = "ppo",
                                     .options = kPpoOptions,
                                     .clip = RatioBounds{.low = 0.8, .high = 1.2},
                                     .evaluate = Ppo};

}  // namespace lathe
