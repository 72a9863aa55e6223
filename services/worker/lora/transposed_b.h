// A second copy of B for the kernels of a CPU.
#pragma once

#include "services/worker/lora/adapter_weights.h"

namespace lathe::worker {

// Gives every pair of `weights` its `b_t`: sums over out_features and sums over the rank then both
// read their numbers side by side. Made once per version.
void AddTransposedB(AdapterWeights& weights);

}  // namespace lathe::worker
