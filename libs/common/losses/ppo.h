// Proximal policy optimisation's clipped objective (arXiv:1707.06347), on request with the lower
// bound of arXiv:1912.09729, section 5.
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

inline constexpr LossOption kPpoOptions[] = {
    // 0: off
    {.key = "dual_clip_threshold", .default_value = 0, .minimum = 1, .excludes_minimum = true}};

// loss = -min(r A, clip(r, low, high) A) with r = exp(p - q). With a dual clip threshold c, and
// where A < 0, at most -c A: a ratio that exploded no longer decides the step.
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
