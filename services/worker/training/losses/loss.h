// Loss programs: functions of target log-probabilities and the tensors a client sent with them.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include "services/worker/ops.h"

namespace lathe::worker {

// One value per entry, an entry being a (position, target) pair; fp32 [E]. A loss reads what
// tinker-api 16.1 lists for it, the rest is zero.
struct LossInputs {
  at::Tensor weights;
  at::Tensor logprobs;  // q: of the policy that sampled
  at::Tensor advantages;
  at::Tensor clip_low;  // bounds of the ratio exp(p - q)
  at::Tensor clip_high;
  at::Tensor mask;  // 1 where the loss counts the entry as sampled: gspo, stable_reinforce
  // gspo: mean of p - q over the masked entries of the datum, at every entry. Else undefined.
  at::Tensor sequence_log_ratio;

  // Entries [begin, begin + size), without the sequence_log_ratio.
  LossInputs Narrow(int64_t begin, int64_t size) const;
};

struct LossResult {
  at::Tensor loss;       // [E] fp32; the total loss is the plain sum
  at::Tensor dlogprobs;  // [E] fp32, d(total loss) / dp
};

// Evaluates the loss `spec` names at log-probabilities p [E] fp32. Entries of zero weight or
// advantage give exactly zero loss and gradient, whatever their p and q are; only the kl term of
// stable_reinforce counts them if they were sampled.
LossResult EvaluateLoss(const LossSpec& spec, const at::Tensor& p, const LossInputs& inputs);

}  // namespace lathe::worker
