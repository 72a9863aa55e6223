#include "services/worker/training/losses/dro.h"

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

LossResult Dro(const at::Tensor& p, const LossInputs& in, double beta) {
  const at::Tensor log_ratio = MaskedLogRatio(p, in);
  const at::Tensor is_ignored = in.advantages == 0;
  at::Tensor loss = at::mul(log_ratio, log_ratio).mul_(0.5 * beta).sub_(at::mul(p, in.advantages));
  at::Tensor slope = at::mul(log_ratio, beta).sub_(in.advantages);
  return {.loss = loss.masked_fill_(is_ignored, 0.0),
          .dlogprobs = slope.masked_fill_(is_ignored, 0.0)};
}

}  // namespace lathe::worker
