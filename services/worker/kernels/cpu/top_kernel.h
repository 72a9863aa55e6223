// Hot file, free of torch: the largest numbers of a row, on a CPU.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Fills `indices` with those of the largest values, the largest first; of equals the lower index is
// the larger. No more of them than there are values, none of which is NaN.
void TopOf(std::span<const float> values, std::span<int32_t> indices);

}  // namespace lathe::worker
