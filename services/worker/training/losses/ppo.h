// Proximal policy optimisation's clipped objective (arXiv:1707.06347), on request with the lower
// bound of arXiv:1912.09729, section 5.
#pragma once

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

// loss = -min(r A, clip(r, low, high) A) with r = exp(p - q). With a dual clip threshold c, and
// where A < 0, at most -c A: a ratio that exploded no longer decides the step.
inline LossValue Ppo(const LossSpec& spec, const LossToken& token) {
  const LossValue value = ClippedSurrogate(Ratio(token), token);
  if (spec.dual_clip_threshold == 0 || token.advantage >= 0) return value;
  const double limit = -spec.dual_clip_threshold * token.advantage;
  return value.loss > limit ? LossValue{.loss = limit, .slope = 0} : value;
}

inline constexpr LossOption kPpoOptions[] = {
    {"clip_low_threshold", &LossSpec::clip_low},
    {"clip_high_threshold", &LossSpec::clip_high},
    {"dual_clip_threshold", &LossSpec::dual_clip_threshold}};

inline constexpr LossProgram kPpo = {
    .name = "ppo",
    .defaults = {.kind = LossKind::kPpo, .clip_low = 0.8, .clip_high = 1.2},
    .options = kPpoOptions,
    .clips = true,
    .evaluate = Ppo};

}  // namespace lathe::worker
