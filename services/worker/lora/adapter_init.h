// Initial values of LoRA factors.
#pragma once

#include <cstdint>
#include <string_view>

#include "services/worker/aten.h"

namespace lathe::worker {

// Fills `matrix` (fp32, contiguous, CPU), the columns from `first_column` on of a whole one
// [rank, in_features], with U(-1/sqrt(in_features), 1/sqrt(in_features)), which is Kaiming-uniform
// with a = sqrt 5, as PEFT starts A. Element i of the whole matrix is a function of (seed, name,
// i), so neither other matrices, nor other adapters, nor threads, nor ranks change it.
void FillKaimingUniform(at::Tensor matrix, uint64_t seed, std::string_view name,
                        int64_t in_features, int64_t first_column);

}  // namespace lathe::worker
