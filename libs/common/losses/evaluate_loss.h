// Losses of a datum's entries. Free of torch: values are read and written on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libs/common/losses/loss.h"

namespace lathe {

// Whether an entry can have a loss or a slope that is not zero: its weight or advantage is not
// zero, or a term that pulls the policy counts it. Known before the forward pass.
bool TakesPart(const LossSpec& spec, const LossDatum& datum, int64_t entry);

// Loss and dL/dp of the entries [begin, end), each times the datum's scale. Entries that take no
// part get exactly zero, whatever their p and q are. All of the datum's log-probabilities must be
// there if its loss couples positions, else those of [begin, end). An entry's bits depend on its
// datum alone.
//   losses, slopes  [end - begin]
void EvaluateLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t begin, int64_t end,
                  float* losses, float* slopes);

// The part of an entry's loss that comes from reference_logprobs; 0 where there is none.
float ReferenceLoss(const LossSpec& spec, const DatumLogprobs& in, int64_t entry);

// LossDatum::scale of each datum of a request, as spec.normalization says; see docs/numerics.md.
std::vector<double> LossScales(const LossSpec& spec, std::span<const LossDatum> data);

}  // namespace lathe
