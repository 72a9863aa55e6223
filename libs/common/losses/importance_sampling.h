// Policy gradient with an importance ratio.
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

// loss = -r A with r = exp(p - q). The loss is its own derivative.
inline LossValue ImportanceSampling(const LossSpec& /*spec*/, const LossToken& token) {
  const double loss = -Ratio(token) * token.advantage;
  return {.loss = loss, .slope = loss};
}

inline constexpr LossProgram kImportanceSampling = {.name = "importance_sampling",
                                                    .evaluate = ImportanceSampling};

}  // namespace lathe
