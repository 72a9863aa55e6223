// Hot file, free of torch: the largest numbers of a row, on a CPU.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Fills `indices` with the indices of the largest values, largest first. Of equal values the lower
// index comes first. `indices` is not longer than `values`, which have no NaN.
void TopOf(std::span<const float> values, std::span<int32_t> indices);

}  // namespace lathe::worker
