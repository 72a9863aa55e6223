// The low-rank additions of a plan on a CPU. Work is divided over outputs, never over a sum, so
// that bits do not depend on threads.
#pragma once

#include <vector>

#include "services/worker/lora/lora_plan.h"

namespace lathe::worker {

// See AddLora.
void AddLoraRows(const LoraPlan& plan);

// See AddLoraBackward; `parts` as the plan was made from.
void AddLoraRowsBackward(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                         const std::vector<AdapterGradients*>& gradients, const at::Tensor& dx);

// Its second half, sums over rows: dA += dproducts^T x, dB += dy^T products.
//   products   scaling * x A^T, laid out by span
//   dproducts  scaling * dy B, same
void AddLoraGradients(const LoraPlan& plan, const std::vector<LoraPart>& parts,
                      const std::vector<AdapterGradients*>& gradients, const float* products,
                      const float* dproducts);

}  // namespace lathe::worker
