// Weighted cross-entropy.
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -w p. Soft targets are several entries of one position.
inline LossValue CrossEntropy(const LossSpec& /*spec*/, const LossToken& token) {
  return {.loss = -token.weight * token.p, .slope = -token.weight};
}

inline constexpr LossProgram kCrossEntropy = {.name = "cross_entropy",
                                              .defaults = {.kind = LossKind::kCrossEntropy},
                                              .inputs = LossInputs::kWeights,
                                              .evaluate = CrossEntropy};

}  // namespace lathe::worker
