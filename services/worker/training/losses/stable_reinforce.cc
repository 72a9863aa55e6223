#include "services/worker/training/losses/stable_reinforce.h"

namespace lathe::worker {
namespace {

constexpr double kRatioCap = 4.0;

}  // namespace

LossResult StableReinforce(const at::Tensor& p, const LossInputs& in, double kl_coeff) {
  const at::Tensor is_ignored = in.mask == 0;
  const at::Tensor log_ratio = at::sub(p, in.logprobs).masked_fill_(is_ignored, 0.0);
  const at::Tensor advantages = in.advantages.masked_fill(is_ignored, 0.0);
  at::Tensor slope = at::exp(log_ratio).clamp_max_(kRatioCap).mul_(advantages).neg_();
  slope.masked_fill_(advantages == 0, 0.0);  // a NaN ratio times 0 is no 0
  at::Tensor loss = at::mul(slope, p).masked_fill_(slope == 0, 0.0);
  if (kl_coeff > 0) {
    loss.add_(at::mul(log_ratio, log_ratio), 0.5 * kl_coeff);
    slope.add_(log_ratio, kl_coeff);
  }
  return {.loss = loss, .dlogprobs = slope};
}

}  // namespace lathe::worker
