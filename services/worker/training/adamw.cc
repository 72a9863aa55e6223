#include "services/worker/training/adamw.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <absl/strings/str_format.h>

#include "services/worker/kernels/cpu/adamw_kernel.h"
#include "services/worker/layers/cpu_rows.h"
#include "services/worker/training/rank_sums.h"

namespace lathe::worker {
namespace {

// The epsilon that torch.nn.utils.clip_grad_norm_ adds to the norm.
constexpr double kClipEpsilon = 1e-6;

// Calls run(begin, end) for each block of kAdamWBlock elements, in parallel. Returns the sum of the
// results, added in block order.
template <typename F>
double SumOverBlocks(int64_t size, const F& run) {
  const int64_t num_blocks = (size + kAdamWBlock - 1) / kAdamWBlock;
  std::vector<double> sums(num_blocks);
  constexpr int64_t kGrainBlocks = 4;  // fewer do not pay for another thread
  ForParts(num_blocks, kGrainBlocks, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kAdamWBlock;
      sums[block] = run(begin, std::min(begin + kAdamWBlock, size));
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

// Sums in fp64, so that squares of large finite gradients do not overflow.
double SquaresOf(const at::Tensor& range) {
  if (!range.is_cpu()) {
    const double norm =
        at::linalg_vector_norm(range, 2, /*dim=*/{}, /*keepdim=*/false, at::kDouble).item<double>();
    return norm * norm;
  }
  const auto* values = range.const_data_ptr<float>();
  return SumOverBlocks(range.numel(), [&](int64_t begin, int64_t end) {
    return SumOfSquares(values + begin, end - begin);
  });
}

// Returns the gradient's norm, the only device-to-host read of a step. Clipping, skipping and the
// metric need it. Ranges are summed separately: ranks that hold the same part then have the same
// blocks and the same sum.
double GradientNorm(const Adapter& adapter, const RankGroup& tp) {
  const auto squares = OfRanges<double>(adapter.sizes(), [&](int64_t begin, int64_t size) {
    return SquaresOf(adapter.gradient.narrow(0, begin, size));
  });
  return std::sqrt(SumOverRanks(squares, adapter, tp));
}

double ClipFactor(double norm, double max_norm) {
  const double factor = max_norm / (norm + kClipEpsilon);
  return max_norm > 0 && factor < 1 ? factor : 1.0;
}

AdamWTask MakeTask(Adapter& adapter, const AdamParams& params, double gradient_scale,
                   AdapterWeights& next) {
  const auto t = static_cast<double>(adapter.num_steps);
  const auto to_float = [](double value) { return static_cast<float>(value); };
  return {.parameters = adapter.parameters().const_data_ptr<float>(),
          .new_parameters = next.tensors.flat.mutable_data_ptr<float>(),
          .gradient = adapter.gradient.mutable_data_ptr<float>(),
          .exp_avg = adapter.exp_avg.mutable_data_ptr<float>(),
          .exp_avg_sq = adapter.exp_avg_sq.mutable_data_ptr<float>(),
          .gradient_scale = to_float(gradient_scale),
          .beta1_complement = to_float(1 - params.beta1),
          .beta2 = to_float(params.beta2),
          .beta2_complement = to_float(1 - params.beta2),
          .decay = to_float(1 - params.learning_rate * params.weight_decay),
          .step_size = to_float(params.learning_rate / (1 - std::pow(params.beta1, t))),
          .inverse_root = to_float(1 / std::sqrt(1 - std::pow(params.beta2, t))),
          .eps = to_float(params.eps)};
}

// Update for other devices than a CPU.
PerRange<double> UpdateByTorch(Adapter& adapter, const AdamParams& params, double gradient_scale,
                               AdapterWeights& next) {
  const at::Tensor before = adapter.parameters().clone();
  const at::Tensor& weights = next.tensors.flat;
  if (!weights.is_same(adapter.parameters())) weights.copy_(before);
  if (gradient_scale != 1) adapter.gradient.mul_(gradient_scale);
  const at::Tensor step = at::full({}, static_cast<double>(adapter.num_steps), weights.options());
  at::_fused_adamw_({weights}, {adapter.gradient}, {adapter.exp_avg}, {adapter.exp_avg_sq},
                    /*max_exp_avg_sqs=*/{}, {step}, params.learning_rate, params.beta1,
                    params.beta2, params.weight_decay, params.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
  adapter.gradient.zero_();
  const at::Tensor change = weights.sub(before);
  return OfRanges<double>(adapter.sizes(), [&](int64_t begin, int64_t size) {
    const double norm = at::linalg_vector_norm(change.narrow(0, begin, size)).item<double>();
    return norm * norm;
  });
}

// Updates moments and weights. Returns the sum of squares of the weights' change, by range.
PerRange<double> Update(Adapter& adapter, const AdamParams& params, double gradient_scale,
                        AdapterWeights& next) {
  if (!next.tensors.flat.is_cpu()) return UpdateByTorch(adapter, params, gradient_scale, next);
  const AdamWTask task = MakeTask(adapter, params, gradient_scale, next);
  return OfRanges<double>(adapter.sizes(), [&](int64_t first, int64_t size) {
    return SumOverBlocks(size, [&](int64_t begin, int64_t end) {
      return AdamWRange(task, first + begin, first + end);
    });
  });
}

// Takes the step. Returns the norm of the weights' change.
double Step(Adapter& adapter, const AdamParams& params, double gradient_scale,
            const StepRanks& ranks) {
  const std::shared_ptr<AdapterWeights> next = adapter.PrepareNext();
  ++adapter.num_steps;
  const PerRange<double> squares = Update(adapter, params, gradient_scale, *next);
  adapter.Replace(next);
  adapter.window.clear();
  return std::sqrt(SumOverRanksAfterStep(squares, adapter, ranks.name, ranks.groups));
}

}  // namespace

absl::StatusOr<std::vector<NamedMetric>> ApplyAdamW(Adapter& adapter, const AdamParams& params,
                                                    NonFiniteGradients policy,
                                                    const StepRanks& ranks) {
  SumGradients(adapter, ranks.groups);
  const double norm = GradientNorm(adapter, ranks.groups.tp);
  const bool is_finite = std::isfinite(norm);
  double update_norm = 0;
  if (is_finite || policy == NonFiniteGradients::kApply) {
    update_norm = Step(adapter, params, ClipFactor(norm, params.grad_clip_norm), ranks);
  } else {
    adapter.ClearGradient();
  }
  if (!is_finite && policy == NonFiniteGradients::kFail) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "gradient norm is %g: the gradient was dropped, weights and moments are unchanged", norm));
  }
  std::vector<NamedMetric> metrics;
  if (is_finite) metrics.push_back({"grad_norm", norm});
  if (std::isfinite(update_norm)) metrics.push_back({"update_norm", update_norm});
  metrics.push_back({"learning_rate", params.learning_rate});
  metrics.push_back({"num_steps", static_cast<double>(adapter.num_steps)});
  metrics.push_back({"nonfinite_gradients", is_finite ? 0.0 : 1.0});
  return metrics;
}

}  // namespace lathe::worker
