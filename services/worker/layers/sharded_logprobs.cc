#include "services/worker/layers/sharded_logprobs.h"

#include <algorithm>
#include <cmath>

namespace lathe::worker {
namespace {

// Returns the chosen tokens' logits, [E] fp64; -inf for tokens of other ranks.
at::Tensor OwnLogits(const at::Tensor& logits, const RowTargets& targets, int64_t first_token) {
  const int64_t width = logits.size(1);
  const at::Tensor columns = at::tensor(targets.tokens, at::kLong) - first_token;
  const at::Tensor is_other = at::lt(columns, 0).logical_or_(at::ge(columns, width));
  const at::Tensor index = at::add(columns.clamp(0, width - 1), RowsOf(targets), width);
  return logits.view(-1)
      .index_select(0, index.to(logits.device()))
      .to(at::kDouble)
      .masked_fill_(is_other.to(logits.device()), -INFINITY);
}

// Returns the larger of both, or NaN if one of them is NaN.
double LargerOf(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

ScoredTargets ScoreTargets(const at::Tensor& logits, const RowTargets& targets, int64_t first_token,
                           const RankGroup& tp) {
  ScoredTargets scored{.stats = SoftmaxStatsOf(logits)};
  if (tp.is_alone()) {
    scored.logprobs = TargetLogprobs(logits, scored.stats, targets);
    return scored;
  }
  // From each rank: a maximum and a sum per row, and a logit per chosen token.
  const at::Tensor all =
      tp.Gather("softmax of the head", at::cat({scored.stats.max.to(at::kDouble), scored.stats.sum,
                                                OwnLogits(logits, targets, first_token)}))
          .to(at::kCPU);
  const auto* const numbers = all.const_data_ptr<double>();
  const int64_t num_rows = logits.size(0);
  const int64_t num_ranks = all.size(0);
  const int64_t stride = all.size(1);
  at::Tensor max = at::empty({num_rows}, at::kFloat);
  at::Tensor sum = at::empty({num_rows}, at::kDouble);
  scored.logprobs.resize(targets.tokens.size());
  for (int64_t row = 0; row < num_rows; ++row) {
    double row_max = -INFINITY;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      row_max = LargerOf(numbers[rank * stride + row], row_max);
    }
    double row_sum = 0;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const double* const of_rank = numbers + rank * stride;
      row_sum += of_rank[num_rows + row] * std::exp(of_rank[row] - row_max);
    }
    max.mutable_data_ptr<float>()[row] = static_cast<float>(row_max);
    sum.mutable_data_ptr<double>()[row] = row_sum;
    const double log_sum = std::log(row_sum);
    for (int64_t i = targets.offsets[row]; i < targets.offsets[row + 1]; ++i) {
      double logit = -INFINITY;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        logit = LargerOf(numbers[rank * stride + 2 * num_rows + i], logit);
      }
      const float shifted = static_cast<float>(logit) - static_cast<float>(row_max);
      scored.logprobs[i] = static_cast<float>(static_cast<double>(shifted) - log_sum);
    }
  }
  scored.stats = {.max = max.to(logits.device()), .sum = sum.to(logits.device())};
  return scored;
}

}  // namespace lathe::worker
