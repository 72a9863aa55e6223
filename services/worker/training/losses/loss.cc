#include "services/worker/training/losses/loss.h"

#include "services/worker/training/losses/cispo.h"
#include "services/worker/training/losses/cross_entropy.h"
#include "services/worker/training/losses/dro.h"
#include "services/worker/training/losses/gspo.h"
#include "services/worker/training/losses/importance_sampling.h"
#include "services/worker/training/losses/ppo.h"
#include "services/worker/training/losses/stable_reinforce.h"

namespace lathe::worker {

LossInputs LossInputs::Narrow(int64_t begin, int64_t size) const {
  return {.weights = weights.narrow(0, begin, size),
          .logprobs = logprobs.narrow(0, begin, size),
          .advantages = advantages.narrow(0, begin, size),
          .clip_low = clip_low.narrow(0, begin, size),
          .clip_high = clip_high.narrow(0, begin, size),
          .mask = mask.narrow(0, begin, size),
          .sequence_log_ratio = {}};
}

LossResult EvaluateLoss(const LossSpec& spec, const at::Tensor& p, const LossInputs& inputs) {
  switch (spec.kind) {
    case LossKind::kCrossEntropy:
      return CrossEntropy(p, inputs);
    case LossKind::kImportanceSampling:
      return ImportanceSampling(p, inputs);
    case LossKind::kPpo:
      return Ppo(p, inputs);
    case LossKind::kCispo:
      return Cispo(p, inputs);
    case LossKind::kDro:
      return Dro(p, inputs, spec.beta);
    case LossKind::kGspo:
      return Gspo(inputs);
    case LossKind::kStableReinforce:
      return StableReinforce(p, inputs, spec.kl_coeff);
  }
  TORCH_CHECK(false, "unknown loss kind");
}

}  // namespace lathe::worker
