// Evaluates the losses of a datum's entries on the host, without torch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libs/common/losses/loss.h"

namespace lathe {

// Returns true if an entry can have a nonzero loss or slope: its weight or advantage is not zero,
// or a penalty term includes it. The answer does not depend on the forward pass.
bool TakesPart(const LossSpec& spec, const LossDatum& datum, int64_t entry);

// Computes loss and dL/dp of the entries [begin, end), each times the datum's scale. Entries that
// do not take part get exactly zero, whatever their p and q are. If the loss couples positions, all
// of the datum's log-probabilities must be present; otherwise only those of [begin, end). The bits
// of an entry depend only on its datum.
//   losses, slopes: [end - begin]
void EvaluateLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t begin, int64_t end,
                  float* losses, float* slopes);

// Returns the part of an entry's loss that comes from reference_logprobs; 0 if there is none.
float ReferenceLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t entry);

// Returns LossDatum::scale of each datum of a request, from spec.normalization; see
// docs/numerics.md.
std::vector<double> LossScales(const LossSpec& spec, std::span<const LossDatum> data);

}  // namespace lathe
