// Log-probabilities of chosen tokens from logits, and the way back. On a CPU by kernels whose rows
// are independent of each other, and equal to those of sampling at temperature 1.
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/aten.h"

namespace lathe::worker {

// Chosen tokens of n rows: those of row i are tokens[offsets[i]] … tokens[offsets[i + 1] - 1].
struct RowTargets {
  std::vector<int64_t> offsets = {0};  // [n + 1]
  std::vector<int64_t> tokens;         // [E], each in [0, V)
};

// The row of each chosen token, [E] on the host.
at::Tensor RowsOf(const RowTargets& targets);

// What makes probabilities of a row of logits: exp(logit - max) / sum.
struct SoftmaxStats {
  at::Tensor max;  // [n] fp32
  at::Tensor sum;  // [n] fp64, of exp(logit - max)
};

// Of logits [n, V] fp32, contiguous.
SoftmaxStats SoftmaxStatsOf(const at::Tensor& logits);
SoftmaxStats SoftmaxStatsByTorch(const at::Tensor& logits);

// [E] on the host: logit - max - log(sum) of each chosen token.
std::vector<float> TargetLogprobs(const at::Tensor& logits, const SoftmaxStats& stats,
                                  const RowTargets& targets);
std::vector<float> TargetLogprobsByTorch(const at::Tensor& logits, const SoftmaxStats& stats,
                                         const RowTargets& targets);

// Replaces logits by the gradient of sum(slopes · TargetLogprobs): for each row the sum over its
// tokens of slope · (onehot - softmax).
//   logits  [n, W]: of the tokens from `first_token` on; targets and `stats` are of all tokens
//   slopes  [E]
void LogprobsBackward(at::Tensor logits, const SoftmaxStats& stats, const RowTargets& targets,
                      const std::vector<float>& slopes, int64_t first_token = 0);
void LogprobsBackwardByTorch(at::Tensor logits, const SoftmaxStats& stats,
                             const RowTargets& targets, const std::vector<float>& slopes,
                             int64_t first_token = 0);

}  // namespace lathe::worker
