// Adam reduced to its arithmetic: the baseline for an optimizer step.
#pragma once

#include <cstdint>

namespace lathe::worker {

// Updates elements [begin, end) of the weights `w` and moments `m` and `v`, and zeroes those of the
// gradients `g`. All are fp32. Runs on the calling thread.
void BareAdam(float* w, float* g, float* m, float* v, int64_t begin, int64_t end);

}  // namespace lathe::worker
