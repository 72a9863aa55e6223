// The importance ratio and clipping that the policy-gradient losses share.
#pragma once

#include <algorithm>
#include <cmath>

#include "libs/common/losses/loss.h"

namespace lathe {

inline double Ratio(const LossToken& token) { return std::exp(token.p - token.q); }

inline double ClipRatio(double ratio, const LossToken& token) {
  return std::min(std::max(ratio, token.clip_low), token.clip_high);
}

// loss = -min(r A, clip(r, low, high) A) for a ratio r with dr/dp = r.
inline LossValue ClippedSurrogate(double ratio, const LossToken& token) {
  const double plain = ratio * token.advantage;
  const double clipped = ClipRatio(ratio, token) * token.advantage;
  // A clipped ratio is a constant; inside the bounds both branches are equal and have slope r A.
  if (clipped < plain) return {.loss = -clipped, .slope = 0};
  return {.loss = -plain, .slope = -plain};
}

}  // namespace lathe
