// Clipped importance-sampling policy optimisation (arXiv:2506.13585).
#pragma once

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

// loss = -sg(clip(r, low, high)) p A with r = exp(p - q); sg stops the gradient.
inline LossValue Cispo(const LossSpec& /*spec*/, const LossToken& token) {
  const double slope = -ClipRatio(Ratio(token), token) * token.advantage;
  return {.loss = slope == 0 ? 0 : slope * token.p, .slope = slope};
}

inline constexpr LossProgram kCispo = {
    .name = "cispo",
    .defaults = {.kind = LossKind::kCispo, .clip_low = 0.0, .clip_high = 4.0},
    .options = kClipOptions,
    .clips = true,
    .evaluate = Cispo};

}  // namespace lathe::worker
