// Direct reward optimization (arXiv:2405.19107).
#pragma once

#include "libs/common/losses/loss.h"

namespace lathe {

inline constexpr LossOption kDroOptions[] = {{.key = "beta", .default_value = 0.05}};

// loss = -(p A - beta/2 (p - q)^2) for entries with nonzero A.
inline LossValue Dro(const LossSpec& spec, const LossToken& token) {
  const double beta = spec.numbers[0];
  const double log_ratio = token.p - token.q;
  return {.loss = 0.5 * beta * log_ratio * log_ratio - token.p * token.advantage,
          .slope = beta * log_ratio - token.advantage};
}

inline constexpr LossProgram kDro = {.name = "dro", .options = kDroOptions, .evaluate = Dro};

}  // namespace lathe
