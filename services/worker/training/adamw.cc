#include "services/worker/training/adamw.h"

#include <algorithm>
#include <cmath>

namespace lathe::worker {
namespace {

// The epsilon torch.nn.utils.clip_grad_norm_ adds to the norm.
constexpr double kClipEpsilon = 1e-6;

void Clip(at::Tensor gradient, double norm, double max_norm) {
  const double factor = max_norm / (norm + kClipEpsilon);
  if (max_norm > 0 && factor < 1) gradient.mul_(factor);
}

void Update(Adapter& adapter, const AdamParams& params) {
  ++adapter.num_steps;
  const at::Tensor step =
      at::full({}, static_cast<double>(adapter.num_steps), adapter.parameters.options());
  at::_fused_adamw_({adapter.parameters}, {adapter.gradient}, {adapter.exp_avg},
                    {adapter.exp_avg_sq}, /*max_exp_avg_sqs=*/{}, {step}, params.learning_rate,
                    params.beta1, params.beta2, params.weight_decay, params.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  adapter.MarkChanged();
}

}  // namespace

std::vector<NamedMetric> ApplyAdamW(Adapter& adapter, const AdamParams& params) {
  // The one read back of a step: clipping, skipping and the metric need the norm. fp64, so that
  // large finite gradients do not overflow when squared.
  const double norm =
      at::linalg_vector_norm(adapter.gradient, 2, /*dim=*/{}, /*keepdim=*/false, at::kDouble)
          .item<double>();
  const bool is_finite = std::isfinite(norm);
  if (is_finite) {
    Clip(adapter.gradient, norm, params.grad_clip_norm);
    Update(adapter, params);
  }
  adapter.ClearGradient();

  std::vector<NamedMetric> metrics = {
      {"learning_rate", params.learning_rate},
      {"num_steps", static_cast<double>(adapter.num_steps)},
      {"skipped_nonfinite_gradient", is_finite ? 0.0 : 1.0},
  };
  if (is_finite) metrics.insert(metrics.begin(), {"grad_norm", norm});
  return metrics;
}

}  // namespace lathe::worker
