// Log-probabilities of chosen tokens where each rank of axis tp has the logits of some tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/aten.h"
#include "services/worker/collectives/rank_group.h"
#include "services/worker/layers/logprobs.h"

namespace lathe::worker {

struct ScoredTargets {
  SoftmaxStats stats;           // over all tokens
  std::vector<float> logprobs;  // [E]
};

// Of logits [n, W] fp32, contiguous: those of the tokens from `first_token` on, -inf for what is no
// token. Each token is one rank's, and each rank has one. Every rank gets the same bits, in one
// exchange; a row's do not depend on the rows around it. A rank alone: SoftmaxStatsOf and
// TargetLogprobs.
ScoredTargets ScoreTargets(const at::Tensor& logits, const RowTargets& targets, int64_t first_token,
                           const RankGroup& tp);

}  // namespace lathe::worker
