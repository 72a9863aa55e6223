#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

at::Tensor MaskedLogRatio(const at::Tensor& p, const LossInputs& in) {
  return at::sub(p, in.logprobs).masked_fill_(in.advantages == 0, 0.0);
}

LossResult ClippedSurrogate(const at::Tensor& ratio, const LossInputs& in) {
  const at::Tensor plain = at::mul(ratio, in.advantages);
  const at::Tensor clipped =
      at::minimum(at::maximum(ratio, in.clip_low), in.clip_high).mul_(in.advantages);
  // A clipped ratio is a constant; inside the bounds both branches are equal and have slope r A.
  const at::Tensor is_constant = at::lt(clipped, plain);
  return {.loss = at::minimum(plain, clipped).neg_(),
          .dlogprobs = plain.neg().masked_fill_(is_constant, 0.0)};
}

}  // namespace lathe::worker
