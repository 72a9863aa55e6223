#include "services/worker/training/losses/gspo.h"

#include "services/worker/training/losses/ratio.h"

namespace lathe::worker {

LossResult Gspo(const LossInputs& in) {
  return ClippedSurrogate(in.sequence_log_ratio.masked_fill(in.advantages == 0, 0.0).exp_(), in);
}

}  // namespace lathe::worker
