#include "services/worker/training/losses/importance_sampling.h"

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

LossResult ImportanceSampling(const at::Tensor& p, const LossInputs& in) {
  // d(r A)/dp = r A: the loss is its own derivative.
  const at::Tensor loss = MaskedLogRatio(p, in).exp_().mul_(in.advantages).neg_();
  return {.loss = loss, .dlogprobs = loss};
}

}  // namespace lathe::worker
