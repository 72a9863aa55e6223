// Clipped importance-sampling policy optimization (arXiv:2506.13585).
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

// loss = -sg(clip(r, low, high)) p A with r = exp(p - q); sg stops the gradient.
inline LossValue Cispo(const LossSpec& /*spec*/, const LossToken& token) {
  const double slope = -ClipRatio(Ratio(token), token) * token.advantage;
  return {.loss = slope == 0 ? 0 : slope * token.p, .slope = slope};
}

inline constexpr LossProgram kCispo = {
    .name = "cispo", .clip = RatioBounds{.low = 0.0, .high = 4.0}, .evaluate = Cispo};

}  // namespace lathe
