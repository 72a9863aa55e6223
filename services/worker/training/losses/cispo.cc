#include "services/worker/training/losses/cispo.h"

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

LossResult Cispo(const at::Tensor& p, const LossInputs& in) {
  const at::Tensor ratio = MaskedLogRatio(p, in).exp_();
  const at::Tensor slope =
      at::minimum(at::maximum(ratio, in.clip_low), in.clip_high).mul_(in.advantages).neg_();
  return {.loss = at::mul(slope, p).masked_fill_(slope == 0, 0.0), .dlogprobs = slope};
}

}  // namespace lathe::worker
