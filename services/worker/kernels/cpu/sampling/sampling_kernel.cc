#include "services/worker/kernels/cpu/sampling/sampling_kernel.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "services/worker/kernels/cpu/sampling/exp_sum.h"
#include "services/worker/kernels/cpu/sampling/random_numbers.h"
#include "services/worker/kernels/cpu/vector_math.h"

namespace lathe::worker {

namespace {

constexpr int64_t kChunk = 256;  // tokens per step of a loop with partial results
// Exceeds the relative rounding error of an exponential number and of a product.
constexpr float kUniformSlack = 1.001f;

// Computes Philox4x32-10 (see random_numbers.h) of `num_blocks` consecutive blocks, four numbers
// each. Uses plain variables, which the compiler keeps in vector registers.
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

LATHE_SIMD_CLONES
void TopOf(std::span<const float> values, std::span<int32_t> indices) {
  if (indices.empty()) return;
  constexpr int64_t kChunk = 256;
  const auto is_larger = [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  // The front of the heap is the smallest of the largest values so far.
  std::iota(indices.begin(), indices.end(), 0);
  std::make_heap(indices.begin(), indices.end(), is_larger);
  const auto n = static_cast<int64_t>(values.size());
  for (auto begin = static_cast<int64_t>(indices.size()); begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk);
    // Most chunks have none: a later value must be larger, not equal.
    if (!(MaxOfRange(values.data() + begin, end - begin) > values[indices.front()])) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (!(values[i] > values[indices.front()])) continue;
      std::pop_heap(indices.begin(), indices.end(), is_larger);
      indices.back() = static_cast<int32_t>(i);
      std::push_heap(indices.begin(), indices.end(), is_larger);
    }
  }
  std::sort_heap(indices.begin(), indices.end(), is_larger);
}

namespace {

constexpr int64_t kStretch = 512;  // tokens per partial sum
constexpr uint32_t kStream = 1;    // last word of the counter; GumbelMax uses 0

// Sums in lanes, so that the order is the same on every CPU.
LATHE_INLINE double SumOf(const float* weights, int64_t n) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weights[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += weights[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// ends[s] is the sum of the weights of stretches 0 … s.
LATHE_SIMD_CLONES
void SumStretches(std::span<const float> weights, std::span<double> ends) {
  const auto n = static_cast<int64_t>(weights.size());
  double end = 0;
  for (size_t stretch = 0; stretch < ends.size(); ++stretch) {
    const int64_t begin = static_cast<int64_t>(stretch) * kStretch;
    end += SumOf(weights.data() + begin, std::min(kStretch, n - begin));
    ends[stretch] = end;
  }
}

// Returns a uniform number in (0, 1) with 53 bits.
double Uniform(uint64_t seed, uint32_t position, uint32_t index) {
  const std::array<uint32_t, 4> bits = Philox({index, position, 0, kStream}, seed);
  const uint64_t high = (uint64_t{bits[0]} << 32 | bits[1]) >> 12;
  return (static_cast<double>(high) + 0.5) * 0x1p-52;
}

}  // namespace

void SampleMultinomial(std::span<const float> weights, uint64_t seed, uint32_t position,
                       std::span<int32_t> tokens) {
  const auto n = static_cast<int64_t>(weights.size());
  std::vector<double> ends((n + kStretch - 1) / kStretch);
  SumStretches(weights, ends);
  for (size_t index = 0; index < tokens.size(); ++index) {
    const double place = Uniform(seed, position, static_cast<uint32_t>(index)) * ends.back();
    // The first stretch that ends behind the place. A stretch without weight is never selected.
    const auto found = std::upper_bound(ends.begin(), ends.end() - 1, place);
    const int64_t begin = (found - ends.begin()) * kStretch;
    double reached = found == ends.begin() ? 0 : *(found - 1);
    int64_t token = begin;
    // Rounding may put the place behind the stretch's last weight, which is then taken.
    for (int64_t i = begin; i < std::min(n, begin + kStretch) && reached <= place; ++i) {
      if (weights[i] == 0) continue;
      reached += weights[i];
      token = i;
    }
    tokens[index] = static_cast<int32_t>(token);
  }
}

}  // namespace lathe::worker
