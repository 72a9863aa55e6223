#include "services/worker/training/losses/ppo.h"

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

LossResult Ppo(const at::Tensor& p, const LossInputs& in) {
  return ClippedSurrogate(MaskedLogRatio(p, in).exp_(), in);
}

}  // namespace lathe::worker
