#include "services/worker/training/losses/cross_entropy.h"

namespace lathe::worker {

LossResult CrossEntropy(const at::Tensor& p, const LossInputs& in) {
  const at::Tensor slope = in.weights.neg();
  return {.loss = at::mul(slope, p).masked_fill_(slope == 0, 0.0), .dlogprobs = slope};
}

}  // namespace lathe::worker
