// Direct reward optimisation (arXiv:2405.19107).
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -(p A - beta/2 (p - q)^2) where A is not zero.
inline LossValue Dro(const LossSpec& spec, const LossToken& token) {
  const double log_ratio = token.p - token.q;
  return {.loss = 0.5 * spec.beta * log_ratio * log_ratio - token.p * token.advantage,
          .slope = spec.beta * log_ratio - token.advantage};
}

inline constexpr LossOption kDroOptions[] = {{"beta", &LossSpec::beta}};

inline constexpr LossProgram kDro = {.name = "dro",
                                     .defaults = {.kind = LossKind::kDro, .beta = 0.05},
                                     .options = kDroOptions,
                                     .evaluate = Dro};

}  // namespace lathe::worker
