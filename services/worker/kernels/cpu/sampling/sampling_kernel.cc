#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"

#include <algorithm>
#include <limits>

#include "services/worker/kernels/cpu/sampling/exp_sum.h"
#include "services/worker/kernels/cpu/sampling/exponential.h"
#include "services/worker/kernels/cpu/sampling/philox.h"
#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {
namespace {

constexpr int64_t kChunk = 256;  // tokens per step of a loop with partial results
// Exceeds the relative rounding error of an exponential number and of a product.
constexpr float kUniformSlack = 1.001f;

// Computes Philox4x32-10 (see philox.h) of `num_blocks` consecutive blocks, four numbers each. Uses
// plain variables, which the compiler keeps in vector registers.
LATHE_INLINE void FillBits(uint32_t first_block, int num_blocks, const SampleKey& key,
                           uint32_t* bits) {
#pragma omp simd
  for (int block = 0; block < num_blocks; ++block) {
    uint32_t c0 = first_block + static_cast<uint32_t>(block);
    uint32_t c1 = key.position;
    uint32_t c2 = key.sample_index;
    uint32_t c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(key.seed);
    uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c0;
      const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += kPhiloxKeyStep0;
      k1 += kPhiloxKeyStep1;
    }
    bits[4 * block] = c0;
    bits[4 * block + 1] = c1;
    bits[4 * block + 2] = c2;
    bits[4 * block + 3] = c3;
  }
}

}  // namespace

LATHE_SIMD_CLONES
double Weigh(std::span<const float> logits, float max, float inverse_temperature, float* weights) {
  return ExpSum<true>(logits.data(), static_cast<int64_t>(logits.size()), max, inverse_temperature,
                      weights);
}

LATHE_SIMD_CLONES
float MaxOf(std::span<const float> values) {
  return MaxOfRange(values.data(), static_cast<int64_t>(values.size()));
}

int64_t FirstOf(std::span<const float> values, float value) {
  const auto found = std::find(values.begin(), values.end(), value);
  return found == values.end() ? 0 : found - values.begin();
}

LATHE_SIMD_CLONES
GumbelMaxResult GumbelMax(std::span<const float> weights, const SampleKey& key,
                          int64_t first_token) {
  const auto n = static_cast<int64_t>(weights.size());
  const float* w = weights.data();
  uint32_t bits[kChunk];
  float times[kChunk];
  float best = std::numeric_limits<float>::infinity();
  int64_t winner = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    FillBits(static_cast<uint32_t>((first_token + begin) / 4), kChunk / 4, key, bits);
    // E >= u: after the first chunks, few chunks have a token that can still win.
    const float reach = best * kUniformSlack;
    int32_t can_win = 0;
#pragma omp simd reduction(| : can_win)
    for (int64_t i = 0; i < count; ++i) can_win |= UniformOf(bits[i]) < reach * w[begin + i];
    if (can_win == 0) continue;
    float least = std::numeric_limits<float>::infinity();
#pragma omp simd reduction(min : least)
    for (int64_t i = 0; i < count; ++i) {
      times[i] = ExponentialOf(bits[i]) / w[begin + i];
      least = std::min(least, times[i]);
    }
    if (!(least < best)) continue;
    best = least;
    winner = begin + (std::find(times, times + count, least) - times);
  }
  return {.token = first_token + winner, .time = best};
}

LATHE_SIMD_CLONES
int32_t GumbelMaxAmong(std::span<const int32_t> token_ids, const float* weights,
                       const SampleKey& key) {
  float best = std::numeric_limits<float>::infinity();
  int32_t winner = token_ids[0];
  for (const int32_t token : token_ids) {
    const std::array<uint32_t, 4> bits =
        Philox({static_cast<uint32_t>(token / 4), key.position, key.sample_index, 0}, key.seed);
    const float time = ExponentialOf(bits[token % 4]) / weights[token];
    if (time < best || (time == best && token < winner)) {
      best = time;
      winner = token;
    }
  }
  return winner;
}

}  // namespace lathe::worker
