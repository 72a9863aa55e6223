// Executes a plan's low-rank updates on a CPU. Threads divide outputs, never a sum, so that bits do
// not depend on the number of threads.
#pragma once

#include <vector>

#include "services/worker/lora/lora_plan.h"

namespace lathe::worker {

// See AddLora.
void AddLoraRows(const LoraPlan& plan);

// See AddLoraBackward. `parts` are those of the plan.
void AddLoraRowsBackward(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                         const std::vector<AdapterGradients*>& gradients, const at::Tensor& dx);

// Second half of AddLoraRowsBackward: sums over rows, dA += dproducts^T x, dB += dy^T products.
//   products   scaling * x A^T, laid out by span
//   dproducts  scaling * dy B, same layout
void AddLoraGradients(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                      const std::vector<AdapterGradients*>& gradients, const float* products,
                      const float* dproducts);

}  // namespace lathe::worker
