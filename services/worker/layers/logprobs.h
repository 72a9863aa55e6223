// Log-probabilities of chosen tokens from logits, and their gradients. On a CPU, kernels compute
// each row independently, with the same bits as sampling at temperature 1.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/collectives/rank_group.h"
#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Chosen tokens of n rows, E in all, out of a vocabulary of V tokens. Row i has the tokens
// tokens[offsets[i]] … tokens[offsets[i + 1] - 1].
struct RowTargets {
  std::vector<int64_t> offsets = {0};  // [n + 1]
  std::vector<int64_t> tokens;         // [E], each in [0, V)
};

// Returns the row of each chosen token: [E], on the host.
at::Tensor RowsOf(const RowTargets& targets);

// Softmax statistics of rows of logits. A probability is exp(logit - max) / sum.
struct SoftmaxStats {
  at::Tensor max;  // [n] fp32
  at::Tensor sum;  // [n] fp64, of exp(logit - max)
};

// `logits` [n, V] fp32, contiguous.
SoftmaxStats SoftmaxStatsOf(const at::Tensor& logits);
SoftmaxStats SoftmaxStatsByTorch(const at::Tensor& logits);

// Returns logit - max - log(sum) of each chosen token: [E], on the host.
std::vector<float> TargetLogprobs(const at::Tensor& logits, const SoftmaxStats& stats,
                                  const RowTargets& targets);
std::vector<float> TargetLogprobsByTorch(const at::Tensor& logits, const SoftmaxStats& stats,
                                         const RowTargets& targets);

// Replaces `logits` by the gradient of sum(slopes · TargetLogprobs). A row's gradient is the sum
// over its tokens of slope · (onehot - softmax).
//   logits  [n, W]: the tokens from `first_token` on; `targets` and `stats` cover all tokens
//   slopes  [E]
void LogprobsBackward(at::Tensor logits, const SoftmaxStats& stats, const RowTargets& targets,
                      const std::vector<float>& slopes, int64_t first_token = 0);
void LogprobsBackwardByTorch(at::Tensor logits, const SoftmaxStats& stats,
                             const RowTargets& targets, const std::vector<float>& slopes,
                             int64_t first_token = 0);

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
