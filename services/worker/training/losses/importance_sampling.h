// Policy gradient with an importance ratio.
#pragma once

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

// loss = -r A with r = exp(p - q): its own derivative.
inline LossValue ImportanceSampling(const LossSpec& /*spec*/, const LossToken& token) {
  const double loss = -Ratio(token) * token.advantage;
  return {.loss = loss, .slope = loss};
}

inline constexpr LossProgram kImportanceSampling = {
    .name = "importance_sampling",
    .defaults = {.kind = LossKind::kImportanceSampling},
    .evaluate = ImportanceSampling};

}  // namespace lathe::worker
