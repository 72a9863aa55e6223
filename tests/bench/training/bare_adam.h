// Adam reduced to its arithmetic, on one thread: what an optimizer step is measured against.
#pragma once

#include <cstdint>

namespace lathe::worker {

// Elements [begin, end) of weights, gradients (set to zero) and both moments, fp32.
void BareAdam(float* w, float* g, float* m, float* v, int64_t begin, int64_t end);

}  // namespace lathe::worker
