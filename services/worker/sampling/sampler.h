// Chooses the next token of each row from its logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/ops.h"

namespace lathe::worker {

// What one row needs besides its logits. The token is a function of these and the logits: neither
// other rows nor earlier draws matter.
struct Draw {
  const SamplingParams* params = nullptr;
  int64_t sample_index = 0;  // within the request
  int64_t position = 0;      // of the token to be drawn, in its own sequence
  // Gets a row of the `k` most likely tokens under the distribution of the logprob; null: not asked
  // for. Draws of one call need one each.
  TopkLogprobs* top = nullptr;
};

struct DrawnTokens {
  std::vector<int32_t> tokens;
  // Natural log of softmax(logits / temperature), before all filters; at temperature 0 of
  // softmax(logits). NaN when the row's logits are not finite.
  std::vector<float> logprobs;
};

// logits [n, V] fp32, one row per draw. Temperature 0 takes the largest logit, else Gumbel-max over
// the tokens that top-k, then top-p, then min-p keep. Runs where the logits lie.
DrawnTokens DrawTokens(const at::Tensor& logits, std::span<const Draw> draws);

}  // namespace lathe::worker
