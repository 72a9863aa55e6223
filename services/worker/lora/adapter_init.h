// Initial values of LoRA factors.
#pragma once

#include <cstdint>
#include <string_view>

#include "services/worker/torch/aten.h"

namespace lathe::worker {

// Fills `matrix` with U(-1/sqrt(in_features), 1/sqrt(in_features)): Kaiming-uniform with a = sqrt
// 5, like PEFT's A. `matrix` (fp32, contiguous, CPU) is the columns from `first_column` on of a
// whole matrix [rank, in_features]. Element i of the whole matrix is a function of (seed, name, i)
// only. So it does not depend on other matrices, adapters, threads or ranks.
void FillKaimingUniform(at::Tensor matrix, uint64_t seed, std::string_view name,
                        int64_t in_features, int64_t first_column);

}  // namespace lathe::worker
