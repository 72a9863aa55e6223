// Hot file, free of torch: one row of logits to one token, on a CPU.
//
// Gumbel-max in its exponential form: the token with the least E / weight wins, where E is
// exponentially distributed and weight is exp((logit - max) / temperature). It needs one logarithm
// per token, no sort and no prefix sum, and a token's E depends on its own id alone.
#pragma once

#include <cstdint>
#include <span>

namespace lathe::worker {

// What the random numbers of one draw are a function of, besides the token id.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  uint32_t position = 0;
};

// weights[i] = exp((logits[i] - max) * inverse_temperature); returns their sum, NaN when a logit
// is NaN or +inf.
double Weigh(std::span<const float> logits, float max, float inverse_temperature, float* weights);

float MaxOf(std::span<const float> values);

// Index of the first largest value.
int64_t FirstOf(std::span<const float> values, float value);

struct RaceResult {
  int64_t token = 0;
  float time = 0;  // E / weight of the winner
};

// The winner among tokens first_token, first_token + 1, …, whose weights these are. They are
// finite, not all zero. `first_token` is a multiple of 4.
RaceResult Race(std::span<const float> weights, const DrawKey& key, int64_t first_token = 0);

// The winner among `token_ids`, the same that Race finds when all other weights are zero.
int32_t RaceAmong(std::span<const int32_t> token_ids, const float* weights, const DrawKey& key);

}  // namespace lathe::worker
