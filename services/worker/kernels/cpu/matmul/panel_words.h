// Vectors of the words that weight panels consist of.
#pragma once

#include <cstdint>

#include "services/worker/kernels/cpu/matmul/weight_panels.h"
#include "services/worker/kernels/cpu/vectors.h"

namespace lathe::worker {

inline constexpr int64_t kPanelVectors = kMatmulPanel / kLanes;

typedef int32_t Words __attribute__((vector_size(4 * kLanes)));
typedef uint16_t Halves __attribute__((vector_size(4 * kLanes)));  // bf16

}  // namespace lathe::worker
