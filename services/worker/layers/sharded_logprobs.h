// Log-probabilities of chosen tokens when the logits are sharded over the ranks of axis tp.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/layers/logprobs.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

struct ScoredTargets {
  SoftmaxStats stats;           // over all tokens
  std::vector<float> logprobs;  // [E]
};

// Scores `targets` on `logits` [n, W] fp32, contiguous. `logits` are this rank's tokens, from
// `first_token` on; padding columns are -inf. Each token belongs to exactly one rank, and each rank
// has at least one. Every rank gets the same bits, after one all-gather; a row's bits do not depend
// on other rows. A single rank uses SoftmaxStatsOf and TargetLogprobs.
ScoredTargets ScoreTargets(const at::Tensor& logits, const RowTargets& targets, int64_t first_token,
                           const RankGroup& tp);

}  // namespace lathe::worker
