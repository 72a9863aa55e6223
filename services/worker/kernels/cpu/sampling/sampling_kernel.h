// Hot file, free of torch: samples one token from one row of logits on a CPU.
//
// Gumbel-max sampling in its exponential form: the token with the least E / weight wins. E is
// exponentially distributed, and weight is exp((logit - max) / temperature). It needs one logarithm
// per token, no sort and no prefix sum. A token's E depends only on its own id.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// Key of a sample's random numbers, besides the token id.
struct SampleKey {
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  uint32_t position = 0;
};

// weights[i] = exp((logits[i] - max) * inverse_temperature). Returns their sum, NaN if a logit is
// NaN or +inf.
double Weigh(std::span<const float> logits, float max, float inverse_temperature, float* weights);

float MaxOf(std::span<const float> values);

// Returns the index of the first element equal to `value`, 0 if there is none.
int64_t FirstOf(std::span<const float> values, float value);

struct GumbelMaxResult {
  int64_t token = 0;
  float time = 0;  // E / weight of the winner
};

// Returns the sampled token among first_token, first_token + 1, …, which have these weights.
// Weights are finite, not all zero. `first_token` is a multiple of 4.
GumbelMaxResult GumbelMax(std::span<const float> weights, const SampleKey& key,
                          int64_t first_token = 0);

// Returns the sampled token among `token_ids`: what GumbelMax returns if all other weights are
// zero.
int32_t GumbelMaxAmong(std::span<const int32_t> token_ids, const float* weights,
                       const SampleKey& key);

// Fills `indices` with the indices of the largest values, largest first. Of equal values the lower
// index comes first. `indices` is not longer than `values`, which have no NaN.
void TopOf(std::span<const float> values, std::span<int32_t> indices);

// Fills `tokens` with independent samples, with replacement. A token's probability is its weight
// divided by the sum. Sample j is a function of (seed, position, j) and the weights; GumbelMax
// never uses its random numbers. Weights are finite and not negative, not all zero.
//
// Samples by inversion: one pass over the row serves all samples, while GumbelMax needs one for
// each.
void SampleMultinomial(std::span<const float> weights, uint64_t seed, uint32_t position,
                       std::span<int32_t> tokens);

}  // namespace lathe::worker
