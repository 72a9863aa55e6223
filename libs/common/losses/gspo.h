// Group sequence policy optimization with per-token advantages (GSPO-token, arXiv:2507.18071).
#pragma once

#include "libs/common/losses/ratio.h"

namespace lathe {

// Returns the mean of p - q over the masked tokens of the datum; 0 (a ratio of 1) without any.
inline double SequenceLogRatio(const DatumLogprobs& in) {
  double sum = 0;
  double count = 0;
  for (size_t i = 0; i < in.datum.mask.size(); ++i) {
    if (in.datum.mask[i] == 0) continue;
    sum += static_cast<double>(in.logprobs[i]) - in.datum.logprobs[i];
    count += 1;
  }
  return sum / std::max(1.0, count);
}

// loss = -min(s A, clip(s, low, high) A), s = exp(SequenceLogRatio): one value for the whole datum,
// whose derivative with respect to each of its p is s.
inline LossValue Gspo(const LossSpec& /*spec*/, const LossToken& token) {
  return ClippedSurrogate(std::exp(token.shared), token);
}

// The default bounds are those of the paper, section 5.1.
inline constexpr LossProgram kGspo = {.name = "gspo",
                                      .mask = LossMask::kSequenceRatio,
                                      .clip = RatioBounds{.low = 1 - 3e-4, .high = 1 + 4e-4},
                                      .evaluate = Gspo,
                                      .couple = SequenceLogRatio};

}  // namespace lathe
