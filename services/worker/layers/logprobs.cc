#include "services/worker/layers/logprobs.h"

#include <algorithm>
#include <cmath>

#include "services/worker/kernels/cpu/sampling/softmax_kernel.h"
#include "services/worker/layers/cpu_rows.h"

namespace lathe::worker {

at::Tensor RowsOf(const RowTargets& targets) {
  std::vector<int64_t> rows;
  rows.reserve(targets.tokens.size());
  for (size_t row = 0; row + 1 < targets.offsets.size(); ++row) {
    rows.insert(rows.end(), targets.offsets[row + 1] - targets.offsets[row],
                static_cast<int64_t>(row));
  }
  return at::tensor(rows, at::kLong);
}

namespace {

// Returns indices of the chosen tokens into the flattened logits.
at::Tensor FlatIndex(const at::Tensor& logits, const at::Tensor& rows, const RowTargets& targets) {
  return at::add(at::tensor(targets.tokens, at::kLong), rows, logits.size(1)).to(logits.device());
}

}  // namespace

SoftmaxStats SoftmaxStatsOf(const at::Tensor& logits) {
  if (!HasCpuRows(logits)) return SoftmaxStatsByTorch(logits);
  const int64_t num_rows = logits.size(0);
  SoftmaxStats stats = {.max = at::empty({num_rows}, at::kFloat),
                        .sum = at::empty({num_rows}, at::kDouble)};
  const SoftmaxStatsTask task = {.logits = logits.const_data_ptr<float>(),
                                 .width = logits.size(1),
                                 .max = stats.max.mutable_data_ptr<float>(),
                                 .sum = stats.sum.mutable_data_ptr<double>()};
  ForRows(num_rows, task.width,
          [&](int64_t begin, int64_t end) { SoftmaxStatsRows(task, begin, end); });
  return stats;
}

std::vector<float> TargetLogprobs(const at::Tensor& logits, const SoftmaxStats& stats,
                                  const RowTargets& targets) {
  if (!HasCpuRows(logits)) return TargetLogprobsByTorch(logits, stats, targets);
  const auto* const x = logits.const_data_ptr<float>();
  const auto* const max = stats.max.const_data_ptr<float>();
  const auto* const sum = stats.sum.const_data_ptr<double>();
  std::vector<float> logprobs(targets.tokens.size());
  for (size_t row = 0; row + 1 < targets.offsets.size(); ++row) {
    const float* const row_logits = x + static_cast<int64_t>(row) * logits.size(1);
    const double log_sum = std::log(sum[row]);
    for (int64_t i = targets.offsets[row]; i < targets.offsets[row + 1]; ++i) {
      const float shifted = row_logits[targets.tokens[i]] - max[row];
      logprobs[i] = static_cast<float>(static_cast<double>(shifted) - log_sum);
    }
  }
  return logprobs;
}

void LogprobsBackward(at::Tensor logits, const SoftmaxStats& stats, const RowTargets& targets,
                      const std::vector<float>& slopes, int64_t first_token) {
  if (!HasCpuRows(logits)) {
    return LogprobsBackwardByTorch(logits, stats, targets, slopes, first_token);
  }
  const SoftmaxGradientTask task = {.logits = logits.mutable_data_ptr<float>(),
                                    .width = logits.size(1),
                                    .first_token = first_token,
                                    .max = stats.max.const_data_ptr<float>(),
                                    .sum = stats.sum.const_data_ptr<double>(),
                                    .offsets = targets.offsets.data(),
                                    .tokens = targets.tokens.data(),
                                    .slopes = slopes.data()};
  ForRows(logits.size(0), task.width,
          [&](int64_t begin, int64_t end) { SoftmaxGradientRows(task, begin, end); });
}

SoftmaxStats SoftmaxStatsByTorch(const at::Tensor& logits) {
  at::Tensor max = at::amax(logits, {1});
  at::Tensor sum = at::sub(logits, max.unsqueeze(1)).exp_().sum(1, /*keepdim=*/false, at::kDouble);
  return {.max = std::move(max), .sum = std::move(sum)};
}

std::vector<float> TargetLogprobsByTorch(const at::Tensor& logits, const SoftmaxStats& stats,
                                         const RowTargets& targets) {
  const at::Tensor host_rows = RowsOf(targets);
  const at::Tensor rows = host_rows.to(logits.device());
  const at::Tensor picked = logits.view(-1)
                                .index_select(0, FlatIndex(logits, host_rows, targets))
                                .sub_(stats.max.index_select(0, rows))
                                .to(at::kDouble)
                                .sub_(stats.sum.log().index_select(0, rows));
  const at::Tensor host = picked.to(at::kCPU, at::kFloat).contiguous();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

void LogprobsBackwardByTorch(at::Tensor logits, const SoftmaxStats& stats,
                             const RowTargets& targets, const std::vector<float>& slopes,
                             int64_t first_token) {
  const at::Tensor host_rows = RowsOf(targets);
  const at::Tensor dlogprobs = at::tensor(slopes, at::kFloat).to(logits.device());
  const at::Tensor total = at::zeros({logits.size(0)}, logits.options())
                               .index_add_(0, host_rows.to(logits.device()), dlogprobs);
  const at::Tensor factor = at::div(total, stats.sum.to(at::kFloat)).neg_();
  logits.sub_(stats.max.unsqueeze(1)).exp_().mul_(factor.unsqueeze(1));
  const at::Tensor columns = at::tensor(targets.tokens, at::kLong) - first_token;
  const at::Tensor is_other = at::lt(columns, 0).logical_or_(at::ge(columns, logits.size(1)));
  const at::Tensor index =
      at::add(columns.clamp(0, logits.size(1) - 1), host_rows, logits.size(1)).to(logits.device());
  logits.view(-1).index_add_(0, index, dlogprobs.masked_fill(is_other.to(logits.device()), 0));
}

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
