// Hot file, free of torch: many tokens from one row, on a CPU.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Fills `tokens` with independent draws, with replacement, each token as likely as its weight is of
// their sum. Draw j is a function of (seed, position, j) and the weights, and its random numbers
// are none that Race uses. Weights are finite and not negative, not all zero.
//
// By inversion: one pass over the row for any number of draws, where Race takes one for each.
void DrawAlternatives(std::span<const float> weights, uint64_t seed, uint32_t position,
                      std::span<int32_t> tokens);

}  // namespace lathe::worker
