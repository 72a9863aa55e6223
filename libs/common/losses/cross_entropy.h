// Weighted cross-entropy.
#pragma once

#include "libs/common/losses/loss.h"

namespace lathe {

// loss = -w p. A soft target is several entries of one position.
inline LossValue CrossEntropy(const LossSpec& /*spec*/, const LossToken& token) {
  return {.loss = -token.weight * token.p, .slope = -token.weight};
}

inline constexpr LossProgram kCrossEntropy = {
    .name = "cross_entropy", .inputs = LossInputs::kWeights, .evaluate = CrossEntropy};

}  // namespace lathe
