// Hot file, free of torch: samples many tokens from one row on a CPU.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Fills `tokens` with independent samples, with replacement. A token's probability is its weight
// divided by the sum. Sample j is a function of (seed, position, j) and the weights; GumbelMax
// never uses its random numbers. Weights are finite and not negative, not all zero.
//
// Samples by inversion: one pass over the row serves all samples, while GumbelMax needs one for
// each.
void SampleMultinomial(std::span<const float> weights, uint64_t seed, uint32_t position,
                       std::span<int32_t> tokens);

}  // namespace lathe::worker
