// Group sequence policy optimisation with per-token advantages (GSPO-token, arXiv:2507.18071).
#pragma once

#include "services/worker/training/losses/loss.h"

namespace lathe::worker {

// loss = -min(s A, clip(s, low, high) A), s = exp(sequence_log_ratio): one value for the whole
// datum, whose derivative with respect to each of its p is s.
LossResult Gspo(const LossInputs& in);

}  // namespace lathe::worker
